"""What training needs works inside the sandbox, with the same bits as without it."""

from pathlib import Path
import shutil
from typing import Any

import pytest
import torch

from tests.processes import kill_attempt
from tests.trainer.runs import same
from tests.worker.attempt import WARM_LAUNCH, Attempt, isolation
from torchyard.contract.cluster.devices import IsolationReport
from torchyard.contract.states import EndReason
from worker.engines.local.warm.manager import WarmProcess
from worker.sandbox import levels

LANDLOCK = pytest.mark.skipif(isolation().level != "landlock", reason="this host has no Landlock")
TRAINS = """
import os, pathlib, subprocess, sys, tempfile
import torch, torchyard
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

torch.manual_seed(1)
dist.init_process_group("gloo")
run = torchyard.init()
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
loader = DataLoader(data, batch_size=4, num_workers=2, sampler=DistributedSampler(data))
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters())
saved = run.resume()
first = 0
if saved is not None:
    model.load_state_dict(saved["model"]), optimizer.load_state_dict(saved["optimizer"])
    first = saved["epoch"] + 1
parallel = torch.nn.parallel.DistributedDataParallel(COMPILED)
for epoch in range(first, first + 2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(parallel(inputs), targets).backward()
        optimizer.step()
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    run.save_checkpoint(content, step=epoch + 1)
with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "x").write_text("temporary")
pathlib.Path.home().joinpath(".cache", "of-mine").mkdir(parents=True, exist_ok=True)
answer = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True)
print("a subprocess says", answer.stdout.strip(), flush=True)
dist.destroy_process_group()
"""
TALKS = """
import array, ctypes, os, pathlib, signal, socket, sys, time
run, rank = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"]), int(os.environ["RANK"])
name = "\\0" + os.environ["TORCHYARD_JOB_ID"]
got = []
signal.signal(signal.SIGUSR2, lambda *_: got.append("signal"))
(run / f"pid-{rank}").write_text(str(os.getpid()))
files = [run / f"pid-{number}" for number in (0, 1)]
while not all(file.exists() and file.read_text() for file in files): time.sleep(0.01)
other = int((run / f"pid-{1 - rank}").read_text())
if rank == 0:
    listener = socket.socket(socket.AF_UNIX); listener.bind(name); listener.listen()
    (run / "listens").touch()
    connection, _ = listener.accept()
else:
    while not (run / "listens").exists(): time.sleep(0.01)
    connection = socket.socket(socket.AF_UNIX); connection.connect(name)
os.kill(other, signal.SIGUSR2)
while not got: time.sleep(0.01)
own, theirs = os.pipe(), None
connection.sendall(f"{own[0]}\\n".encode())
number = int(connection.makefile().readline())
os.write(own[1], b"from the other rank")
libc = ctypes.CDLL(None, use_errno=True)
taken = libc.syscall(438, os.pidfd_open(other), number, 0)
assert taken >= 0, os.strerror(ctypes.get_errno())
print(os.read(taken, 100).decode(), flush=True)
assert os.listdir(f"/proc/{other}/fd")
connection.sendall(b"end\\n"), connection.recv(4)
"""
SHOWS_VARIABLES = """
import os, pathlib
def environ(pid): return pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\\0")
run = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
print("the rank", os.environ["MARK"], os.environ["PATH"], flush=True)
print("the launcher", b"MARK=x" in environ(os.getppid()), b"PATH=/mine" in environ(os.getppid()), flush=True)
"""


@LANDLOCK
@WARM_LAUNCH
def test_two_ranks_share_abstract_sockets_signals_and_descriptors(attempt: Attempt) -> None:
    attempt.start_job(TALKS)
    report = attempt.report()
    assert report.reason is EndReason.COMPLETED, report
    assert [attempt.log(f"rank-{rank}", "stdout") for rank in (0, 1)] == ["from the other rank\n"] * 2


@pytest.mark.parametrize("attempt", ["cold"], indirect=True)
def test_the_launcher_has_none_of_the_jobs_variables_under_their_names(attempt: Attempt) -> None:
    attempt.stand_in = True  # it is started as torchrun is
    attempt.start_job(SHOWS_VARIABLES, env={"MARK": "x", "PATH": "/mine"}, world_size=1)
    report = attempt.report()
    assert report.reason is EndReason.COMPLETED, report
    assert attempt.log("rank-0", "stdout").splitlines() == ["the rank x /mine", "the launcher False False"]


@LANDLOCK
@WARM_LAUNCH
def test_a_refused_write_says_how_the_operator_allows_it(attempt: Attempt) -> None:
    attempt.start_job("open('out.txt', 'w')", world_size=1)
    report = attempt.report()
    assert report.reason is EndReason.USER_ERROR
    assert f"--allow-path {attempt.run.root}/code:rw to write" in report.message


@WARM_LAUNCH
def test_a_script_writes_in_a_folder_that_the_operator_lets_jobs_write(attempt: Attempt) -> None:
    attempt.writable = (attempt.script("").parent,)
    attempt.start_job("open('out.txt', 'w').write('x')", world_size=1)
    report = attempt.report()
    assert report.reason is EndReason.COMPLETED, report
    assert (attempt.run.root / "code" / "out.txt").read_text() == "x"


@pytest.fixture(params=["warm", pytest.param("cold", marks=pytest.mark.thorough)])
def way(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.thorough
@pytest.mark.parametrize(
    "compiled", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["eager", "torch.compile"]
)
def test_training_and_its_resume_are_bit_equal_with_and_without_the_sandbox(
    tmp_path: Path, warm_process: WarmProcess, way: str, compiled: bool
) -> None:
    script = TRAINS.replace("COMPILED", "torch.compile(model)" if compiled else "model")
    trained = [
        _trained(tmp_path / level.level, script, way=way, warm=warm_process, level=level)
        for level in (levels.OFF, isolation())
    ]
    without, inside = trained
    assert without["epoch"] == inside["epoch"] == 3
    assert [key for key in without if not same(without[key], inside[key])] == []


def _trained(folder: Path, script: str, *, way: str, warm: WarmProcess, level: IsolationReport) -> dict[str, Any]:
    """Trains two epochs in a first attempt and two in a second one, and returns the last checkpoint."""
    resume: Path | None = None
    found: dict[str, Any] = {}
    for number in ("first", "second"):
        attempt = Attempt.create(
            folder / number, warm=None if way == "cold" else warm, launcher="warm" if way == "warm" else "torchrun"
        )
        attempt.isolation = level
        try:
            if resume is not None:
                shutil.copytree(resume, attempt.run.resume)
            attempt.start_job(script, resumes=resume is not None)
            report = attempt.report()
        finally:
            assert kill_attempt(attempt.job_id, attempt.number) == []
        assert report.reason is EndReason.COMPLETED, report
        assert "a subprocess says 42" in attempt.log("rank-0", "stdout")
        resume = max(attempt.run.checkpoints.iterdir())
        found = torch.load(resume / "state.pt", weights_only=True)
    return found
