"""The start of a rank, as a process: its name, its logs, its `__main__`, and what it records of an error."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
import errno
import json
import os
from pathlib import Path
import re
import resource
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from api.advice.output import last_frame
from tests import forks
from tests.approved import Approved
from tests.forked import ForkedProgram
from tests.worker.attempt import wait_for
from torchyard.contract.attempts.events import Message, parse_line
from torchyard.contract.attempts.records import Manifest, ProcessIdentity, RankError, StopRequest
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.contract.states import EndReason
from torchyard.host.recordfiles import read_record, write_record
from torchyard.run.rank import _reason  # pyright: ignore[reportPrivateUsage]

forks.preload("torch", "torchyard.run.current", "torchyard.contract.recipes")


@dataclass(frozen=True)
class Rank:
    """Rank 1 of an attempt, with a code folder of its own."""

    run: RunDir
    code: Path

    @contextmanager
    def running(self, script: str, *, prepare: Callable[[], None] | None = None) -> Generator[ForkedProgram]:
        """Runs a program as a fork of a process that has imported torch, and kills it at the end of the block."""
        started = ForkedProgram(
            "torchyard.run.rank",
            self._write(script),
            env=self._environment,
            cwd=self.code,
            log=self.code / "said",
            prepare=prepare,
        )
        try:
            yield started
        finally:
            started.kill()

    def execute(self, script: str, *, prepare: Callable[[], None] | None = None) -> int:
        with self.running(script, prepare=prepare) as started:
            return started.wait(240)

    def execute_anew(self, script: str, *arguments: str) -> int:
        """Runs the program as a worker does: Python starts, and has imported nothing."""
        return self.start_anew(self._write(script), *arguments)

    def start_anew(self, *arguments: str) -> int:
        command = [sys.executable, "-P", "-u", "-m", "torchyard.run.rank", *arguments]
        with subprocess.Popen(command, env=self._environment, cwd=self.code, stdin=subprocess.DEVNULL) as started:
            return started.wait()

    def _write(self, script: str) -> str:
        path = self.code / "train.py"
        path.write_text(script)
        return str(path)

    @property
    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "RANK": "1",
            Env.JOB_ID: "job_x",
            Env.ATTEMPT: "2",
            Env.RUN_DIR: str(self.run.job),
        }

    @property
    def stdout(self) -> str:
        return self.run.log("rank-1", "stdout").read_text()

    @property
    def stderr(self) -> str:
        return self.run.log("rank-1", "stderr").read_text()

    @property
    def error(self) -> RankError | None:
        return read_record(self.run.errors / "1.json", RankError)


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    run = RunDir(tmp_path / "run")
    run.create()
    code = tmp_path / "code"
    code.mkdir()
    return Rank(run, code)


def _recorded(rank: Rank) -> RankError:
    assert rank.error is not None
    return rank.error


ABSENT = ("pydantic", "safetensors", "setproctitle", "psutil")


def import_anew() -> None:
    """Has the rank import all of ours anew, where some packages are not installed."""
    for name in [*sys.modules]:
        if name.partition(".")[0] in {"torchyard", *ABSENT}:
            del sys.modules[name]
    sys.modules.update(dict.fromkeys(ABSENT, None))  # pyright: ignore[reportArgumentType, reportCallIssue] whoever imports it gets ImportError


def test_a_checkpoint_without_safetensors_has_its_state_and_the_job_is_told(rank: Rank, approved: Approved) -> None:
    script = """
import os
os.environ["RANK"] = "0"
import torch, torchyard

run = torchyard.init()
for step in (1, 2):
    run.save_checkpoint({"step": step}, step=step, weights={"layer": torch.ones(2)})
"""
    assert rank.execute(script, prepare=import_anew) == 0, rank.stderr
    manifest = read_record(rank.run.checkpoints / "step-00000002" / "manifest.json", Manifest)
    assert manifest is not None
    assert [file.path for file in manifest.files] == ["state.pt"]
    lines = [parse_line(line) for line in rank.run.events.read_bytes().splitlines()]
    assert [line.text for line in lines if isinstance(line, Message)] == [approved("text")]


def test_a_script_sees_what_python_would_show_it(rank: Rank, approved: Approved) -> None:
    script = """
import sys, os, pathlib
print(__name__, __file__, sys.argv, sys.path[0], __spec__)
print(sys.modules["__main__"].__dict__ is globals(), sorted(n for n in globals() if not n.startswith("__")))
print([m for m in sys.modules if m.split(".")[0] in {"trainer", "api", "controller", "store", "worker", "torch"}])
print(pathlib.Path("/proc/self/cmdline").read_bytes().rstrip(b"\\0").decode())
print("error", file=sys.stderr)
"""
    assert rank.execute_anew(script, "--lr", "1") == 0
    path = rank.code / "train.py"
    assert rank.stdout.splitlines() == [
        f"__main__ {path} {[str(path), '--lr', '1']} {rank.code} None",
        approved("output"),
        "[]",
        "torchyard:job_x attempt 2 rank 1",
    ]
    assert rank.stderr == "error\n"
    assert rank.error is None
    assert read_record(rank.run.ranks / "1.json", ProcessIdentity) is not None


INIT = "import signal, torchyard; run = torchyard.init(); "


@pytest.mark.parametrize(
    ("script", "stop", "finished"),
    [
        ("", False, True),
        ("", True, False),  # it may have trapped SIGTERM for a while
        (INIT + "raise SystemExit", True, True),
        (INIT + "assert run.should_stop()", True, False),
        (INIT + "assert run.stop_requested", True, False),
        (INIT + "signal.raise_signal(signal.SIGTERM); assert run.should_stop()", False, False),
        (INIT + "signal.signal(signal.SIGTERM, signal.SIG_IGN)", False, False),
        (INIT + "raise SystemExit(1)", False, False),
    ],
)
def test_a_program_has_finished_if_it_ends_well_and_never_heard_of_a_stop(
    rank: Rank, script: str, stop: bool, finished: bool
) -> None:
    if stop:
        write_record(rank.run.stop, StopRequest(reason=EndReason.PAUSED))
    assert rank.execute(script) == ("SystemExit(1)" in script), rank.stderr
    assert rank.run.finished(1).exists() == finished


def test_a_module_is_run_as_with_dash_m(rank: Rank, approved: Approved) -> None:
    assert rank.start_anew("-m", "json.tool", "--help") == 0
    assert "usage:" in rank.stdout
    assert rank.start_anew("-m", "no_such_module") == 1
    assert "No module named no_such_module" in rank.stderr
    assert _recorded(rank).message == approved("message")  # and not which Python says so


@pytest.mark.parametrize(
    "name", ["trainer", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("store", "worker", "api"))]
)
def test_the_users_own_package_wins_over_ours(rank: Rank, name: str) -> None:
    (rank.code / name).mkdir()
    (rank.code / name / "__init__.py").write_text("OWNER = 'user'")
    assert rank.execute_anew(f"import torchyard, {name}\nprint({name}.OWNER)") == 0
    assert rank.stdout == "user\n"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_and_pickles_of_the_scripts_own_classes_work(rank: Rank, method: str) -> None:
    script = f"""
import multiprocessing, pickle
class Item:
    def __init__(self, value): self.value = value
def double(item): return Item(item.value * 2)
if __name__ == "__main__":
    with multiprocessing.get_context("{method}").Pool(1) as pool:
        print([item.value for item in pool.map(double, [Item(1), Item(2)])])
        pool.close()
        pool.join()
    print(type(pickle.loads(pickle.dumps(Item(1)))) is Item)
"""
    assert rank.execute_anew(script) == 0, rank.stderr
    assert rank.stdout == "[2, 4]\nTrue\n"


def test_an_exception_is_printed_and_recorded_without_our_frames(rank: Rank, approved: Approved) -> None:
    assert rank.execute("def inner():\n    raise ValueError('boom \\x00 \\ud800')\ninner()") == 1
    error = _recorded(rank)
    assert (error.rank, error.reason, error.type) == (1, EndReason.USER_ERROR, "ValueError")
    assert error.message == "boom \ufffd \ufffd"
    assert abs(error.time / 1e6 - time.time()) < 3600
    assert error.traceback == approved("traceback", code=rank.code)
    assert "torchyard" not in error.traceback
    assert "torchyard" not in rank.stderr


def test_an_error_that_we_raise_is_recorded_at_the_line_of_the_script(rank: Rank, approved: Approved) -> None:
    own = rank.code / "torchyard"  # a folder of the user, whatever its name
    own.mkdir()
    (own / "helper.py").write_text(
        "from torchyard.run.eventlog import EventLog\n"
        "events = EventLog('x', synchronize=None)\n"
        "def log():\n    events.log({'loss': 'abc'}, step=1)\n"
    )
    assert rank.execute("import sys\nsys.path.insert(0, 'torchyard')\nimport helper\nhelper.log()") == 1, rank.stderr
    error = _recorded(rank)
    assert str(last_frame(error.traceback)) == approved("last_frame")
    assert "eventlog.py" in rank.stderr and "eventlog.py" not in error.traceback
    assert error.traceback.endswith(f"{error.type}: {error.message}\n")


@pytest.mark.parametrize(
    ("raising", "reason"),
    [
        ("from torchyard.contract.errors import DataError; raise DataError('x')", EndReason.DATA_ERROR),
        ("from torchyard.contract.errors import ConfigError; raise ConfigError('x')", EndReason.CONFIG_ERROR),
        ("from torchyard.contract.errors import NonFiniteLoss; raise NonFiniteLoss('x')", EndReason.USER_ERROR),
        ("raise MemoryError", EndReason.OUT_OF_MEMORY),
        ("class OutOfMemoryError(Exception): pass\nraise OutOfMemoryError", EndReason.USER_ERROR),
        ("raise KeyboardInterrupt", EndReason.USER_ERROR),
        ("def f(:", EndReason.USER_ERROR),
    ],
)
def test_the_reason_follows_from_the_class(rank: Rank, raising: str, reason: EndReason) -> None:
    assert rank.execute(raising) == 1
    assert _recorded(rank).reason is reason


@pytest.mark.parametrize(
    ("name", "number", "said"),
    [
        ("../data", errno.EROFS, True),
        ("../../data/x.bin", errno.ENOENT, True),
        ("{work}/../Datasets", errno.EACCES, True),
        ("data/../x.bin", errno.ENOENT, False),
        ("{work}/x.bin", errno.EACCES, False),
        ("/srv/data", errno.EACCES, False),
    ],
)
def test_a_path_above_the_working_folder_is_said_to_need_the_folder_above(
    rank: Rank, name: str, number: int, *, said: bool
) -> None:
    work = rank.run.work
    work.mkdir()
    raising = f"os.chdir({str(work)!r})\nraise OSError({number}, 'refused', {name.format(work=work)!r})"
    assert rank.execute(f"import os\nos.environ[{Env.ISOLATION.value!r}] = 'landlock'\n{raising}") == 1
    message = _recorded(rank).message
    assert ("torchyard run -- sh -c 'cd FOLDER && python PROGRAM'" in message) is said, message
    assert ("--allow-path" in message) is (number != errno.ENOENT and not said)


ALLOCATES = """
import psutil, resource, sys
MiB = 1 << 20
def allocate(take, more):
    taken = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (taken + more * MiB, taken + more * MiB))
    return take()
"""


@pytest.mark.parametrize(
    ("allocation", "wanted"),
    [
        ("import torch\nallocate(lambda: torch.empty(3 << 30, dtype=torch.float32), 1000)", r"wanted 12\.0 GiB, "),
        ("import numpy\nallocate(lambda: numpy.empty(600 * MiB, dtype='u1'), 300)", r"wanted 600\.0 MiB, "),
        ("allocate(lambda: bytearray(1 << 40), 300)", ""),
    ],
    ids=["torch", "numpy", "python"],
)
def test_a_failed_allocation_says_what_was_wanted_and_what_is_free(rank: Rank, allocation: str, wanted: str) -> None:
    assert rank.execute(ALLOCATES + allocation) == 1
    error = _recorded(rank)
    assert error.reason is EndReason.OUT_OF_MEMORY
    found = re.fullmatch(wanted + r"free ([0-9.]+) MiB of [0-9.]+ [GM]iB: take smaller batches", error.message)
    assert found, error.message
    assert 0 < float(found[1]) <= 1024


def test_a_gpus_allocator_is_quoted_and_a_recipe_told_what_to_set(rank: Rank, approved: Approved) -> None:
    said = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.11 GiB"
    script = (
        f"import os, torch\nos.environ['{Env.DATA}'] = 'digits'\nraise torch.OutOfMemoryError({said!r} + 99 * '\\nat.')"
    )
    assert rank.execute(script) == 1
    assert _recorded(rank).reason is EndReason.OUT_OF_MEMORY
    assert _recorded(rank).message == approved("message", said=said)


LANGUAGE: dict[str, Any] = {"model": {"weights": "file:///base"}, "data": {"source": "file:///data"}}
AND_MORE = "; or set training.activation_checkpointing to true; or set distributed.strategy to fsdp, on several devices"


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        (
            {"training": {"per_device_batch_size": 4}},
            "lower training.per_device_batch_size, or set training.auto_batch; or set data.max_length to 512: a "
            f"micro-batch is 4 sequences (4,096 tokens){AND_MORE}",
        ),
        ({}, f"set data.max_length to 512: a micro-batch is 1 sequence (1,024 tokens){AND_MORE}"),
        (
            {
                "training": {"activation_checkpointing": True, "per_device_batch_size": 2},
                "model": {"weights": "file:///base", "method": "full"},
                "distributed": {"strategy": "fsdp"},
            },
            "lower training.per_device_batch_size; or set data.max_length to 512: a micro-batch is 2 sequences (2,048 "
            "tokens); or set model.method to lora; or take more devices, among which fsdp divides the model",
        ),
    ],
    ids=["several sequences", "one sequence", "fsdp"],
)
def test_a_language_model_that_does_not_fit_is_told_what_to_set_in_tokens(
    rank: Rank, more: dict[str, Any], advice: str
) -> None:
    file = rank.code / "config.json"
    file.write_text(json.dumps({"trainer": "causal-lm", "config": {**LANGUAGE, **more}}))
    names = {Env.DATA.value: "/data", Env.CONFIG.value: str(file)}
    assert rank.execute(f"import os\nos.environ.update({names!r})\nraise MemoryError('no memory')") == 1
    assert _recorded(rank).reason is EndReason.OUT_OF_MEMORY
    assert _recorded(rank).message.endswith(f": {advice}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("CUDA error: uncorrectable ECC error encountered", EndReason.DEVICE_FAULT),
        ("CUDA error: uncorrectable NVLink error detected during the execution", EndReason.DEVICE_FAULT),
        ("CUDA error: hardware stack error", EndReason.DEVICE_FAULT),
        (
            "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error",
            EndReason.DEVICE_FAULT,
        ),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", EndReason.DEVICE_FAULT),
        ("CUDA error: all CUDA-capable devices are busy or unavailable", EndReason.DEVICE_FAULT),
        ("Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized", EndReason.DEVICE_FAULT),
        ("CUDA error: system has unsupported display driver / cuda driver combination", EndReason.DEVICE_FAULT),
        ("NCCL error in: a.cpp:3\nCuda failure 214 'uncorrectable ECC error encountered'", EndReason.DEVICE_FAULT),
        ("CUDA error: an illegal memory access was encountered", EndReason.USER_ERROR),
        ("CUDA error: device-side assert triggered", EndReason.USER_ERROR),
        ("CUDA error: unspecified launch failure", EndReason.USER_ERROR),
        ("CUDA error: out of memory", EndReason.OUT_OF_MEMORY),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", EndReason.OUT_OF_MEMORY),
        ("NCCL error in: a.cpp:3\nFailed to CUDA calloc async 608 bytes", EndReason.OUT_OF_MEMORY),
        ("my parser met a hardware stack error", EndReason.USER_ERROR),
    ],
)
def test_a_fault_of_the_device_is_told_from_one_of_the_program(text: str, reason: EndReason) -> None:
    raised = type("AcceleratorError", (RuntimeError,), {"__module__": "torch"})
    assert _reason(raised(f"{text}\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.")) is reason


def test_a_device_fault_is_recorded(rank: Rank) -> None:
    said = "CUDA error: uncorrectable ECC error encountered"
    assert rank.execute(f"import torch\nraise torch.AcceleratorError({said!r})") == 1
    assert (_recorded(rank).reason, _recorded(rank).message) == (EndReason.DEVICE_FAULT, said)


def test_a_checkpoint_that_cannot_be_written_fails_the_program_that_has_ended(rank: Rank) -> None:
    script = """
import os, sys, torchyard
os.environ["RANK"] = "0"
def fail(file): raise OSError(5, "Input/output error")
run = torchyard.init()
run.save_checkpoint({}, step=1, background=True)
run.save_checkpoint({}, step=2, files={"half": fail}, background=True)
sys.exit()
"""
    assert rank.execute(script) == 1
    assert (_recorded(rank).reason, _recorded(rank).type) == (EndReason.USER_ERROR, "OSError")
    assert [path.name for path in rank.run.checkpoints.iterdir()] == ["step-00000001"]


SAVES_LAST = """
import os, torchyard, torchyard.run.context
os.environ["RANK"] = "0"
torchyard.run.context.FULL_DISK_S = 0.0  # nobody makes room here
def fail(file): raise OSError(28, "No space left on device")
run = torchyard.init()
run.save_checkpoint({}, step=1, files={"half": fail}, background=True)
"""


@pytest.mark.parametrize(
    "script",
    [
        SAVES_LAST,
        "raise OSError(122, 'Disk quota exceeded')",
        "try:\n    raise OSError(28, 'No space left on device')\nexcept OSError:\n    raise RuntimeError('not saved')",
    ],
)
def test_a_program_that_a_full_disk_ends_is_not_at_fault(rank: Rank, script: str) -> None:
    assert rank.execute(script) == 1
    assert _recorded(rank).reason is EndReason.WORKER_LOST
    assert re.match(r"a disk of the worker is full: \[Errno (28|122)\] ", _recorded(rank).message)


def test_an_error_that_a_full_disk_cannot_hold_is_recorded_when_there_is_room(rank: Rank) -> None:
    with rank.running(
        "import os, time\nwhile not os.path.exists('gate'): time.sleep(0.01)\nraise ValueError('x' * 1000)"
    ) as started:
        wait_for((rank.run.ranks / "1.json").exists, "the rank")
        before = resource.prlimit(started.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(started.pid, resource.RLIMIT_FSIZE, (20, before[1]))  # no file of it may grow beyond it
        (rank.code / "gate").touch()
        changes: set[int] = set()
        wait_for(lambda: changes.add(rank.run.errors.stat().st_mtime_ns) or len(changes) > 3, "a refusal")
        assert rank.error is None
        resource.prlimit(started.pid, resource.RLIMIT_FSIZE, before)
        assert started.wait(240) == 1
    assert _recorded(rank).reason is EndReason.USER_ERROR


@pytest.mark.parametrize(("code", "status"), [("0", 0), ("", 0), ("None", 0), ("5", 5), ("'a sentence'", 1)])
def test_an_exit_keeps_its_code(rank: Rank, code: str, status: int) -> None:
    assert rank.execute(f"import sys; sys.exit({code})") == status
    if status == 0:
        assert rank.error is None
        return
    assert _recorded(rank).message == ("a sentence" if "sentence" in code else f"exited with code {code}")
    assert "torchyard" not in _recorded(rank).traceback


def test_long_errors_are_cut_and_keep_their_end(rank: Rank) -> None:
    assert rank.execute("raise ValueError('x' * 100_000 + 'the end')") == 1
    error = _recorded(rank)
    assert len(error.message) == 4_000
    assert len(error.traceback) < 32_100
    assert error.traceback.endswith("the end\n")
    assert error.traceback.startswith("Traceback")


def test_an_error_without_a_message_is_still_recorded(rank: Rank, approved: Approved) -> None:
    script = "class Broken(Exception):\n    def __str__(self): raise RuntimeError\nraise Broken"
    assert rank.execute(script) == 1
    assert _recorded(rank).message == approved("message")


def test_a_forked_childs_error_is_not_the_ranks(rank: Rank) -> None:
    script = "import os\nif os.fork() == 0: raise ValueError('child')\nos.wait()"
    assert rank.execute(script) == 0
    assert "ValueError: child" in rank.stderr
    assert rank.error is None


def test_the_users_excepthook_prints(rank: Rank) -> None:
    assert rank.execute("import sys\nsys.excepthook = lambda *_: print('mine')\nraise ValueError") == 1
    assert rank.stdout == "mine\n"
    assert _recorded(rank).type == "ValueError"


def test_a_signal_dumps_every_threads_stack_and_sigterm_ends(rank: Rank) -> None:
    script = """
import os, pathlib, threading, time
def background():
    while True: time.sleep(1)
threading.Thread(target=background, daemon=True).start()
pathlib.Path("ready").touch()
while True: time.sleep(0.05)
"""
    with rank.running(script) as started:
        _wait((rank.code / "ready").exists)
        started.send_signal(signal.SIGUSR1)
        _wait(lambda: "Current thread" in rank.stderr and "in background" in rank.stderr)
        started.send_signal(signal.SIGTERM)
        assert started.wait(240) == -signal.SIGTERM


def test_a_rank_that_cannot_write_its_stacks_runs_without_the_handler(
    rank: Rank, tmp_path: Path, approved: Approved
) -> None:
    rank.run.stacks.rmdir()
    assert rank.execute("import signal; print(signal.getsignal(signal.SIGRTMAX) is signal.SIG_DFL)") == 0
    assert rank.stdout == "True\n"
    assert rank.stderr == approved("errors", tmp_path=tmp_path)


def test_the_stacks_of_a_rank_are_for_its_user_alone_and_no_program_inherits_them(rank: Rank) -> None:
    script = """
import os, signal, subprocess
os.kill(os.getpid(), signal.SIGRTMAX)
print(subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, close_fds=False).stdout)
"""
    assert rank.execute(script) == 0
    file = rank.run.stacks / "1.txt"
    assert "train.py" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert "stacks" not in rank.stdout
    assert rank.stderr == ""


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
