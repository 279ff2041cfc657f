"""Own code over connections that are cut at random: one job, every line once, and no damaged file."""

from collections import Counter
import hashlib
from pathlib import Path
from random import Random

import pytest

from tests.cutting import cutting_proxy, random_cuts
from tests.e2e.service import Service
from tests.torchyard.cli.invocation import environment, run_process
from tests.torchyard.client.drivers import DRIVERS
from torchyard.client import LogLine, MetricView
from torchyard.client.packing.bundle import pack

CUTS = 25
LINES = 2000
PROGRAM = f"""
import hashlib, torchyard
run = torchyard.init()
for number in range({LINES}):
    print("line", number)
    run.log({{"number": number}}, step=number)
data = open("data.bin", "rb").read()
print("data", hashlib.sha256(data).hexdigest(), flush=True)
run.save_checkpoint({{}}, step=1, files={{"state.pt": lambda file: file.write(data)}})
"""


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A program, with data of its own that does not compress."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / "data.bin").write_bytes(Random(request.node.name).randbytes(400_000))
    return folder


@pytest.mark.parametrize("driver", ["blocking", pytest.param("asyncio", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_the_client_runs_and_follows_one_job(service: Service, folder: Path, driver: str, seed: int) -> None:
    cuts, name = random_cuts(Random(seed), CUTS, most=60_000), f"cut-{driver}-{seed}"
    with cutting_proxy(service.server["url"], cuts) as url, DRIVERS[driver](url, service.server["token"]) as client:
        job = client.run("train.py", folder=folder, name=name)
        updates = list(client.jobs.follow(job.id))
        fetched = client.jobs.download(job.id, ref="latest", to=folder.parent / "fetched.pt")
    assert not cuts
    assert [found.id for found in service.client.jobs.list(name=name)] == [job.id]
    assert [item.text for item in updates if isinstance(item, LogLine)] == expected(folder)
    points = Counter(item.step for item in updates if isinstance(item, MetricView))
    assert points == Counter(range(LINES))
    assert fetched.read_bytes() == (folder / "data.bin").read_bytes()


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
def test_the_command_line_runs_and_follows_one_job(service: Service, folder: Path, seed: int) -> None:
    cuts, name = random_cuts(Random(seed), CUTS, most=60_000), f"cut-cli-{seed}"
    with cutting_proxy(service.server["url"], cuts) as url:
        variables = environment(url, service.server["token"])
        done = run_process(["run", "--name", name, "train.py"], variables, cwd=folder)
        fetched = run_process(["download", name, "--latest", "-o", "fetched.pt"], variables, cwd=folder)
    assert not cuts
    assert done.stdout.splitlines() == [f"rank 0 | {line}" for line in expected(folder)], done.stderr
    assert (done.returncode, fetched.returncode) == (0, 0), fetched.stderr
    assert len(list(service.client.jobs.list(name=name))) == 1
    assert (folder / "fetched.pt").read_bytes() == (folder / "data.bin").read_bytes()


@pytest.mark.thorough
def test_a_pushed_folder_arrives_whole(service: Service, folder: Path) -> None:
    cuts = random_cuts(Random(3), CUTS, most=60_000)
    with cutting_proxy(service.server["url"], cuts) as url:
        done = run_process(["data", "push", "."], environment(url, service.server["token"]), cwd=folder)
    assert not cuts
    with pack(folder) as bundle, service.client as client:
        assert (done.stdout, done.returncode) == (f"{bundle.url}\n", 0), done.stderr
        fetched = client.bundles.download(bundle.sha256, folder / "fetched.tar")
        assert hashlib.sha256(fetched.read_bytes()).hexdigest() == bundle.sha256


def expected(folder: Path) -> list[str]:
    """Returns what the program prints."""
    data = hashlib.sha256((folder / "data.bin").read_bytes()).hexdigest()
    return [*(f"line {number}" for number in range(LINES)), f"data {data}"]
