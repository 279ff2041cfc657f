"""What a program leaves in its working folder is kept, and `torchyard cp` fetches it."""

from collections.abc import Mapping
import json
from pathlib import Path

import pytest

from tests.e2e.service import Service, until
from tests.torchyard.cli.invocation import environment, run_in_process
from torchyard.contract.states import JobState

LEAVES = """
import os, pathlib, sys, time
results = pathlib.Path("results")
results.mkdir()
(results / "plot.png").write_bytes(bytes(range(256)) * 100)
(results / "deep").mkdir()
(results / "deep" / "table.csv").write_text("a,b")
pathlib.Path("notes.txt").write_text("none")
pathlib.Path("token.txt").write_text(os.environ.get("TOKEN", ""))
pathlib.Path("__pycache__").mkdir(exist_ok=True)
pathlib.Path("__pycache__", "x.pyc").write_text("x")
while pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(LEAVES)
    (folder / "data.csv").write_text("came with the code")
    return folder


def cp(service: Service, *arguments: str, cwd: Path) -> str:
    own = environment(service.server["url"], service.server["token"])
    done = run_in_process(["cp", *arguments], own, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def keep(service: Service, *arguments: str, cwd: Path) -> tuple[int, str, str]:
    done = run_in_process(["keep", *arguments], environment(service.server["url"], service.server["token"]), cwd=cwd)
    return done.returncode, done.stdout, done.stderr


def kept(service: Service, job_id: str) -> Mapping[str, int]:
    return {item.path: item.size for item in service.client.jobs.kept_files(job_id)}


def test_what_a_program_that_fails_wrote_is_kept_without_a_word(service: Service, folder: Path, tmp_path: Path) -> None:
    service.client.secrets.set("TOKEN", "a secret value")
    job = service.client.run(
        "train.py",
        args=[tmp_path / "none", 3],
        folder=folder,
        name="leaves-work",
        max_restarts=0,
        env={"TOKEN": {"secret": "TOKEN"}},
    )
    service.wait(job.id, JobState.FAILED)
    assert kept(service, job.id) == {"results/plot.png": 25600, "results/deep/table.csv": 3, "notes.txt": 4}
    texts = [event.data.get("text", "") for event in service.client.jobs.events(job.id)]
    (text,) = [text for text in texts if "not kept" in text]
    assert text.startswith("not kept: token.txt (14 B, it has the value of a secret), still on ")
    assert text.endswith(f" UTC: torchyard keep {job.id} token.txt")
    listed = cp(service, f"{job.id}:", cwd=tmp_path)
    assert [line.split("  ")[0] for line in listed.splitlines()[1:]] == [
        "notes.txt",
        "results/deep/table.csv",
        "results/plot.png",
    ]
    cp(service, f"{job.id}:results/", ".", cwd=tmp_path)
    assert (tmp_path / "results" / "plot.png").read_bytes() == bytes(range(256)) * 100
    assert (tmp_path / "results" / "deep" / "table.csv").read_text() == "a,b"
    cp(service, f"{job.id}:./notes.txt", "copy.txt", cwd=tmp_path)
    assert (tmp_path / "copy.txt").read_text() == "none"
    (file,) = service.client.get(job.id).kept_files("notes.txt")
    assert file.download(tmp_path / "third.txt").read_text() == "none"
    code, said, told = keep(service, *text.split()[-2:], cwd=tmp_path)
    assert (code, said) == (0, "stored: 1 file, 14 B\n"), told
    assert keep(service, job.id, "token.txt", cwd=tmp_path)[:2] == (0, "stored: already stored\n")
    cp(service, f"{job.id}:token.txt", ".", cwd=tmp_path)
    assert (tmp_path / "token.txt").read_text() == "a secret value"
    code, _, told = keep(service, job.id, "none/", cwd=tmp_path)
    assert (code, "nothing there matches" in told) == (1, True)
    code, _, told = keep(service, job.id, "../x", cwd=tmp_path)
    assert (code, "must be inside the working folder" in told) == (1, True)
    found = json.loads(cp(service, f"{job.id}:", "--json", cwd=tmp_path))
    assert {item["attempt"] for item in found["kept"]} == {1}


def test_what_a_pattern_names_is_kept_while_the_program_runs(service: Service, folder: Path) -> None:
    gate = service.code / "keeps-gate"  # a job has a /tmp of its own
    gate.touch()
    job = service.client.run(
        "train.py", args=[gate, 0], folder=folder, name="keeps", keep=["results", "none/*"], max_restarts=0
    )
    until(lambda: len(kept(service, job.id)) == 2 or None, what="the results are kept")
    assert service.client.get(job.id).state is JobState.RUNNING
    gate.unlink()
    service.wait(job.id, JobState.SUCCEEDED)
    assert kept(service, job.id) == {"results/plot.png": 25600, "results/deep/table.csv": 3}
    texts = [event.data.get("text", "") for event in service.client.jobs.events(job.id)]
    assert "nothing matches: 'none/*' (keep)" in texts
