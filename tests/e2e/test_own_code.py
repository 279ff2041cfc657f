"""`torchyard run` and what it runs, with a real service: from a folder of one's own to the end of the job."""

from collections.abc import Mapping
import json
from pathlib import Path
import re
import shutil
import subprocess

import pytest

from tests.e2e.service import Service, until
from tests.torchyard.cli.invocation import environment, run_in_process, run_process
from tests.worker.eventfiles import NAME, scalars
from torchyard.client import Client, JobView
from torchyard.client.packing.bundle import pack
from torchyard.contract.bundles.names import digest_in
from torchyard.contract.errors import InvalidSpec
from torchyard.contract.states import EndReason, JobState

HELLO = "print('hello', flush=True)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder, whose name is the job's."""
    folder = tmp_path / "mine"
    folder.mkdir()
    return folder


def test_a_dirty_git_tree_runs_to_its_end(service: Service, folder: Path) -> None:
    write(folder, {"train.py": "print('old')\n", ".gitignore": "*.log\n"})
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "first"]):
        identity = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
        subprocess.run(["git", *identity, *arguments], cwd=folder, check=True)
    program = "import os, sys\nprint(sys.argv[1:], sorted(set(os.listdir()) - {'__pycache__'}))\nsys.exit(7)\n"
    write(folder, {"train.py": program, "ignored.log": "x", "new.txt": "x"})
    write(folder, {"torchyard.toml": '[run]\nname = "dirty"\n'})

    done = torchyard(service, folder, "run", "train.py", "--epochs", "10")
    assert done.returncode == 1
    files = ["'.gitignore'", "'new.txt'", "'torchyard.toml'", "'train.py'"]
    assert f"rank 0 | ['--epochs', '10'] [{', '.join(files)}]" in done.stdout.splitlines()
    assert "SystemExit: 7" in done.stderr

    shown = asked(service, folder, "show", "dirty").stdout
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True).stdout
    assert re.search(rf"^git +{commit[:10]} main, dirty$", shown, re.MULTILINE), shown
    code = json.loads(asked(service, folder, "show", "dirty", "--json").stdout)["spec"]["config"]
    assert "-print('old')" in code["git"]["diff"]


@pytest.mark.thorough
def test_a_second_run_uploads_nothing_and_changes_nothing_for_the_first(service: Service, folder: Path) -> None:
    program = "import os\nprint(os.path.exists('left'), flush=True)\nopen('left', 'w').write('x')\n"
    write(folder, {"train.py": program})
    first, second = (torchyard(service, folder, "run", "train.py") for _ in range(2))
    assert "Uploaded 2.0 KiB." in first.stderr
    assert "Nothing was sent" in second.stderr and "Uploaded" not in second.stderr
    assert first.stdout == second.stdout == "rank 0 | False\n"
    assert (first.returncode, second.returncode) == (0, 0)
    assert not (folder / "left").exists()


@pytest.mark.thorough
def test_a_module_and_a_command_run_where_the_code_is(service: Service, folder: Path) -> None:
    write(folder, {"package/__init__.py": "", "package/train.py": "import sys; print(__package__, sys.argv[1:])\n"})
    module = torchyard(service, folder, "run", "--devices", "2", "-m", "package.train", "-x")
    assert sorted(module.stdout.splitlines()) == ["rank 0 | package ['-x']", "rank 1 | package ['-x']"]
    command = torchyard(service, folder, "run", "--", "bash", "-c", "ls package; echo $0 $1", "a", "b c")
    assert command.stdout.splitlines() == ["rank 0 | __init__.py", "rank 0 | train.py", "rank 0 | a b c"]
    assert command.returncode == 0


@pytest.mark.thorough
def test_pushed_data_is_mounted_for_scripts_and_recipes(service: Service, folder: Path) -> None:
    write(folder, {"train.py": "import os; print(open(os.environ['TORCHYARD_MOUNTS'] + '/data/one/a.txt').read())\n"})
    write(folder, {"photos/one/a.txt": "of the mount"})
    url = torchyard(service, folder, "data", "push", "photos").stdout.strip()
    done = torchyard(service, folder, "run", "--mount", f"data={url}", "train.py")
    assert done.stdout == "rank 0 | of the mount\n"
    # The recipe reads the bundle, and finds no pictures in it.
    with service.client as client:
        job = client.submit({"trainer": "image-classification", "config": {"data": {"source": url}}})
    error = service.wait(job.id, JobState.FAILED).error
    assert error is not None
    assert error.code is EndReason.DATA_ERROR


def test_a_recipe_trains_on_a_bundle(service: Service, folder: Path) -> None:
    from PIL import Image

    for label in ("crack", "whole"):
        (folder / label).mkdir()
        for number in range(16):
            Image.new("RGB", (16, 16), (number, 0, 0)).save(folder / label / f"{number}.png")
    url = asked(service, folder, "data", "push", ".").stdout.strip()
    job = service.client.submit(
        {
            "trainer": "image-classification",
            "config": {"data": {"source": url, "image_size": 16}, "training": {"max_steps": 2}},
        }
    )
    service.wait(job.id, JobState.SUCCEEDED)
    assert max(item.step for item in service.client.jobs.checkpoints(job.id)) == 2


@pytest.mark.thorough
def test_a_job_that_waits_says_so_until_it_starts(service: Service, folder: Path) -> None:
    gate = service.code / "own-code-gate"
    held = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.02)\n"
    first = service.submit_script("holds", held, resources={"devices_per_node": 2})
    service.wait(first.id, JobState.RUNNING)
    write(folder, {"train.py": HELLO})
    detached = torchyard(service, folder, "run", "-d", "train.py")
    job_id = detached.stdout.strip()
    until(lambda: waits(service.client.get(job_id).view), what="the job says what it waits for")
    gate.touch()
    done = torchyard(service, folder, "logs", "-f", job_id)
    assert done.stdout == "rank 0 | hello\n"
    assert done.returncode == 0


def waits(job: JobView) -> bool:
    return job.state is JobState.QUEUED and "needs 1 device; 0 free on " in job.status_reason.message


@pytest.mark.thorough
def test_a_script_without_torchyard_has_curves_and_checkpoints(service: Service, folder: Path) -> None:
    write(folder, {"torchyard.toml": '[run]\nname = "captured"\n'})
    (folder / "points").write_bytes(scalars("loss", {1: 0.5, 2: 0.25}))  # an event file would be known as brought
    program = f"""
import os, pathlib, shutil
run = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"], "artifacts", "tb")
run.mkdir(parents=True)
shutil.copyfile("points", run / {NAME!r})
pathlib.Path("out").mkdir()
pathlib.Path("out/one.pt").write_bytes(b"weights")
"""
    write(folder, {"train.py": program})
    assert torchyard(service, folder, "run", "--checkpoints", "out/*.pt", "train.py").returncode == 0
    with service.client as client:
        job = client.get("captured")
        (saved,) = client.jobs.checkpoints(job.id)
        (file,) = saved.files
        fetched = client.jobs.download(job.id, ref="latest", file=file.path, to=folder / "fetched.pt")
    assert fetched.read_bytes() == b"weights"
    shown = torchyard(service, folder, "metrics", "captured")
    table = shown.stdout + shown.stderr
    assert re.search(r"^loss .*0\.25", table, re.MULTILINE), table
    assert "tensorboard" in table


@pytest.mark.thorough
def test_a_worker_that_lost_its_cache_fetches_the_bundle_again(service: Service, folder: Path) -> None:
    write(folder, {"train.py": HELLO + "# lost\n"})
    sha256 = uploaded(service, folder)
    submit = code_of(sha256)
    service.wait(service.client.submit(submit).id, JobState.SUCCEEDED)
    cached = list(service.data.rglob(f"admin/{sha256}"))
    assert cached
    for tree in cached:
        shutil.rmtree(tree)
    service.wait(service.client.submit(submit).id, JobState.SUCCEEDED)


def test_a_blob_that_is_gone_is_an_error_that_says_what_to_do(service: Service, folder: Path) -> None:
    write(folder, {"train.py": HELLO + "# gone\n"})
    sha256 = uploaded(service, folder)
    (service.data / "blobs" / sha256[:2] / sha256).unlink()
    done = service.wait(service.client.submit(code_of(sha256)).id, JobState.FAILED)
    assert done.error is not None
    assert (done.error.code, done.attempt) == (EndReason.DATA_ERROR, 1)
    assert done.error.message == f"the bundle {sha256} is no longer stored: upload it again"


def test_another_users_bundle_is_refused(service: Service, folder: Path) -> None:
    write(folder, {"train.py": HELLO + "# private\n"})
    sha256 = uploaded(service, folder)
    with service.client as client:
        client.users.add("mallory")
        token = client.tokens.make(user="mallory").token
    with Client(url=service.server["url"], token=token) as mallory, pytest.raises(InvalidSpec) as refused:
        mallory.submit(code_of(sha256))
    (error,) = refused.value.errors
    assert error.field == "config.code"
    assert sha256 in error.message


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def torchyard(service: Service, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command line in the folder, for the service."""
    server = service.server
    return run_process(arguments, environment(server["url"], server["token"]), cwd=folder)


def asked(service: Service, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Does the same in this process, which takes less of a processor."""
    server = service.server
    return run_in_process(arguments, environment(server["url"], server["token"]), cwd=folder)


def uploaded(service: Service, folder: Path) -> str:
    """Uploads the folder. Returns its digest."""
    with service.client as client, pack(folder) as bundle:
        client.bundles.upload(bundle)
    found = digest_in(bundle.url)
    assert found is not None
    return found


def code_of(sha256: str) -> dict[str, object]:
    """Returns a job that runs the bundle's train.py."""
    return {"trainer": "script", "max_restarts": 0, "config": {"code": f"bundle:sha256:{sha256}"}}
