"""A rank exits faster than Python itself, and still does all that a program relies on at the end of Python."""

from collections.abc import Mapping
from dataclasses import dataclass
import gzip
import os
from pathlib import Path
import subprocess
import sys
import zipfile

import pytest

from tests.worker.attempt import Attempt
from torchyard.contract.attempts.rundir import Env, RunDir

CHANGE_FOLDER = "import os\nos.chdir(os.path.dirname(os.path.abspath(__file__)))\n"
PROGRAMS = {
    "text in a file that is open": "file = open('text', 'w'); file.write('x' * 10)",
    "bytes in a file that a module has open": "import held; held.file = open('bytes', 'wb'); held.file.write(b'x')",
    "a logger's lines": "import logging; logging.basicConfig(filename='log'); logging.error('text')",
    "a file in a function's default": "def write(file=open('text', 'w')): file.write('x')\nwrite()",
    "a file in a cycle": "class A: pass\na = A(); a.own, a.file = a, open('text', 'w'); a.file.write('x')",
    "gzip": "import gzip; file = gzip.open('text.gz', 'wt', compresslevel=0); file.write('x' * 99)",
    "gzip of a module": "import gzip, held; held.file = gzip.open('text.gz', 'wt'); held.file.write('x' * 99)",
    "bz2 of a module": "import bz2, held; held.file = bz2.open('bytes.bz2', 'wb'); held.file.write(b'x' * 99)",
    "zip": "import zipfile; file = zipfile.ZipFile('a.zip', 'w'); file.writestr('name', 'text')",
    "zip of a module": "import held, zipfile as z; held.file = z.ZipFile('a.zip', 'w'); held.file.writestr('b', 'x')",
    "zip in a file of a module": (
        "import zipfile, held; held.raw = open('a.zip', 'wb'); held.file = zipfile.ZipFile(held.raw, 'w')\n"
        "held.file.writestr('c', 'text')"
    ),
    "a file without its text layer": "import held; held.text = open('text', 'w'); held.file = held.text.detach()",
    "what is not flushed on stdout": "import sys; sys.stdout = open(1, 'w', closefd=False); print('end', end='')",
    "what C has not flushed": "import ctypes; ctypes.CDLL(None).printf(b'from C')",
    "functions of atexit": "import atexit\nfor name in 'ab': atexit.register(print, name)",
    "one that fails": "import atexit, sys; atexit.register(sys.exit, 5); atexit.register(print, 'first')",
    "one that registers another": "import atexit; atexit.register(lambda: atexit.register(print, 'last'))",
    "a thread": "import threading, time; threading.Thread(target=lambda: [time.sleep(0.2), print('ended')]).start()",
    "a pool of threads": "import concurrent.futures as f; f.ThreadPoolExecutor().submit(lambda: print('done'))",
    "a finalizer": "class Last:\n    def __del__(self): print('finalized')\nlast = Last()",
    "a folder of tempfile": "import tempfile; folder = tempfile.TemporaryDirectory(dir='.')",
    "a file of tempfile": "import tempfile; file = tempfile.NamedTemporaryFile(dir='.')",
    "a process": "import multiprocessing as m; m.get_context('fork').Process(target=print, args=['child']).start()",
    "a child that comes to the end": (
        "import atexit, os; file = open('text', 'a'); atexit.register(print, 'end', os.getpid())\n"
        "if os.fork(): os.wait()\nelse: file.write('child')"
    ).replace(", os.getpid()", ""),
    "a child that fails": "import os\nif os.fork(): print(os.waitstatus_to_exitcode(os.wait()[1]))\nelse: 1 / 0",
    "a child that exits": "import os, sys\nif os.fork(): print(os.wait()[1])\nelse: sys.exit(7)",
    "0": "raise SystemExit(0)",
    "3": "import sys; sys.exit(3)",
    "-1": "import sys; sys.exit(-1)",
    "256": "import sys; sys.exit(256)",
    "a big number": "import sys; sys.exit(2**70)",
    "text": "import sys; sys.exit('text')",
    "an exception": "raise ValueError('text')",
    "a full stdout": "import sys; sys.stdout = open('/dev/full', 'w'); print('text')",
    "a full stderr and an exit": "import sys; sys.stderr = open('/dev/full', 'w'); sys.stderr.write('x'); sys.exit(4)",
    "a full file": "file = open('/dev/full', 'w'); file.write('text')",
    "a closed stdout": "import sys; sys.stdout.close()",
    "no stdout": "import sys; sys.stdout = None",
    "a closed descriptor": "import os; os.close(1)",
}
QUICK = {
    *("text in a file that is open", "what C has not flushed", "functions of atexit", "a thread", "3", "an exception"),
    "a full stdout",
}
"""One of each kind, for the short run."""

HAS_DAEMON_THREADS = """
import threading, time
def run():
    while True: time.sleep(0.0001)
for _ in range(4): threading.Thread(target=run, daemon=True).start()
class Slow:
    def __del__(self): self.sleep(0.1)
slow = Slow()
slow.sleep = time.sleep
"""
WARM = pytest.mark.parametrize("attempt", ["warm"], indirect=True)


@dataclass(frozen=True)
class Exit:
    status: int
    stdout: str
    files: Mapping[str, bytes]


def _program(folder: Path, text: str) -> Path:
    (folder / "held.py").touch()
    (folder / "train.py").write_text(CHANGE_FOLDER + text)
    return folder / "train.py"


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: _content(path) for path in folder.iterdir() if path.is_file() and path.suffix != ".py"}


def _content(path: Path) -> bytes:
    """Returns the content without the times that a zip file contains."""
    if path.suffix != ".zip":
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    with zipfile.ZipFile(path) as file:
        return b" ".join(name.encode() for name in file.namelist())


def _by_python(folder: Path, text: str) -> Exit:
    folder.mkdir()
    script = _program(folder, text)
    ended = subprocess.run([sys.executable, "-u", str(script)], capture_output=True, text=True, check=False)
    return Exit(ended.returncode, ended.stdout, _files(folder))


def _as_fresh_rank(folder: Path, text: str) -> Exit:
    run = RunDir(folder / "run")
    run.create()
    code = folder / "code"
    code.mkdir()
    env = {"PATH": os.environ["PATH"], "RANK": "0", Env.JOB_ID: "job_x", Env.ATTEMPT: "1", Env.RUN_DIR: str(run.job)}
    command = [sys.executable, "-P", "-u", "-m", "torchyard.run.rank", str(_program(code, text))]
    ended = subprocess.run(command, env=env, check=False)
    return Exit(ended.returncode, run.log("rank-0", "stdout").read_text(), _files(code))


def _as_fork(attempt: Attempt, text: str) -> Exit:
    folder = attempt.script("").parent
    _program(folder, "")
    attempt.writable = (folder,)
    attempt.start(CHANGE_FOLDER + text)
    report = attempt.report()
    return Exit(report.exit_code or 0, attempt.log("rank-0", "stdout"), _files(folder))


@WARM
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, id=name, marks=() if name in QUICK else pytest.mark.thorough)
        for name, text in PROGRAMS.items()
    ],
)
def test_a_fork_exits_as_python_does(attempt: Attempt, tmp_path: Path, text: str) -> None:
    assert _as_fork(attempt, text) == _by_python(tmp_path / "python", text)


@pytest.mark.thorough
@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_a_rank_exits_as_python_does(tmp_path: Path, text: str) -> None:
    assert _as_fresh_rank(tmp_path, text) == _by_python(tmp_path / "python", text)


@WARM
def test_daemon_threads_print_no_errors_at_the_exit(attempt: Attempt) -> None:
    attempt.start(HAS_DAEMON_THREADS)
    assert attempt.report().exit_code is None
    assert attempt.log("rank-0", "stderr") == ""
