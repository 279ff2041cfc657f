"""What parses files with curves is a process that reaches nothing, and whose end or stop ends nothing but itself."""

from collections.abc import Iterator
import os
from pathlib import Path
import signal
import subprocess
import sys
import time

import pytest

from tests.worker.curvefiles import Database, files_of, history, points_of, wandb_log
from tests.worker.eventfiles import NAME, scalars, write
from worker.curves import child, following, parsed, parsing
from worker.curves.child import Child, Failed
from worker.curves.following import CurveFiles, CurvesRead
from worker.sandbox import seccomp

_PATIENCE_S = 120.0


@pytest.fixture
def parser() -> Iterator[Child]:
    parser = Child()
    yield parser
    parser.close()


def pid_of(parser: Child) -> int:
    process = parser._process._process  # pyright: ignore[reportPrivateUsage]
    assert process is not None
    return process.pid


def next_found(files: CurveFiles, offsets: dict[str, int], *, final: bool = False) -> CurvesRead:
    """Reads until something is found or said."""
    until = time.monotonic() + _PATIENCE_S
    while (found := files.read(offsets, final=final)) == CurvesRead():
        assert time.monotonic() < until
    offsets.update(found.offsets)
    return found


def test_one_process_reads_files_of_all_kinds_and_has_no_descriptor_but_its_pipes(
    tmp_path: Path, parser: Child
) -> None:
    write(tmp_path / "runs" / NAME, scalars("loss", {1: 0.5}))
    write(tmp_path / "wandb" / "run-a" / "run-a.wandb", wandb_log(history(2, {"acc": 0.25})))
    Database(tmp_path / "mlflow.db").log("f1", 0.125, step=3)
    files, offsets = CurveFiles(tmp_path, parser=parser), dict[str, int]()
    sources, pids = dict[str, int](), set[int]()
    while len(sources) < 3:
        found = next_found(files, offsets)
        sources |= {source: points[0].step for source, points in found.points.items()}
        pids.add(pid_of(parser))
    assert sources == {"tensorboard": 1, "wandb": 2, "mlflow": 3}
    (pid,) = pids
    opened = {str(each.readlink()).partition(":")[0] for each in Path(f"/proc/{pid}/fd").iterdir()}
    assert opened == {"pipe", "/dev/null"}
    files.close()
    assert not Path(f"/proc/{pid}").exists()


def test_without_a_file_no_process_is_started(tmp_path: Path, parser: Child) -> None:
    write(tmp_path / "out" / "loss.csv", b"1,2\n")
    files = CurveFiles(tmp_path, parser=parser, look_s=0)
    for final in (False, False, True):
        assert files.read({}, final=final) == CurvesRead()
    assert parser._process._process is None  # pyright: ignore[reportPrivateUsage]


def test_after_the_process_was_killed_it_is_said_once_and_nothing_is_lost_or_repeated(
    tmp_path: Path, parser: Child
) -> None:
    path = write(tmp_path / NAME, scalars("loss", {1: 0.5}))
    files, offsets = CurveFiles(tmp_path, parser=parser), dict[str, int]()
    steps, warnings = [point.step for point in points_of(next_found(files, offsets))], list[str]()
    for step in (2, 3):
        os.kill(pid_of(parser), signal.SIGKILL)
        with path.open("ab") as file:
            file.write(scalars("loss", {step: 0.5}))
        while step not in steps:
            found = next_found(files, offsets)
            steps += [point.step for point in points_of(found)]
            warnings += found.warnings
    assert steps == [1, 2, 3]
    assert len(warnings) <= 1  # one that is seen to be gone is started again at once


def test_a_stopped_process_holds_nothing_up_and_is_replaced(
    tmp_path: Path, parser: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / NAME, scalars("loss", {1: 0.5}))
    files, offsets = CurveFiles(tmp_path, parser=parser), dict[str, int]()
    next_found(files, offsets)
    monkeypatch.setattr(child, "_WALL_S", 1.0)
    os.kill(pid_of(parser), signal.SIGSTOP)
    with path.open("ab") as file:
        file.write(scalars("loss", {2: 0.5}))
    assert files.read(offsets, final=False) == CurvesRead()
    found = next_found(files, offsets)
    assert found.warnings == ["the process that reads metric files ended with -9; restarting it"]
    monkeypatch.undo()
    assert [point.step for point in points_of(next_found(files, offsets))] == [2]


class Dying:
    """Fails as often as it is asked about a file that is bad."""

    def __init__(self, bad: bytes = b"bad") -> None:
        self.questions = 0
        self._bad = bad
        self._question = b""

    def ask(self, question: bytes) -> None:
        self.questions += 1
        self._question = question

    def answer(self, wait_s: float) -> bytes:
        if self._bad in self._question:
            raise Failed("ended with 1")
        return parsing.answered(self._question)

    def close(self) -> None: ...


def test_a_file_that_ends_the_process_twice_is_given_up_and_the_others_are_read(tmp_path: Path) -> None:
    for name, tag in (("a", "loss"), ("b", "bad"), ("c", "acc")):
        write(tmp_path / name / NAME, scalars(tag, {1: 0.5}))
    files, offsets = files_of(tmp_path, parser=Dying()), dict[str, int]()
    keys, warnings = list[str](), list[str]()
    while (found := files.read(offsets, final=True)).offsets or files.unfinished:
        offsets.update(found.offsets)
        keys += [point.key for point in points_of(found)]
        warnings += found.warnings
    assert sorted(keys) == ["acc", "loss"]
    assert [text.partition("cannot be parsed")[0] for text in warnings] == [
        "the process that reads metric files ended with 1; restarting it",
        f"b/{NAME} ",
    ]


def test_a_process_that_ends_again_and_again_is_not_started_any_more(tmp_path: Path) -> None:
    for number in range(20):
        write(tmp_path / str(number) / NAME, scalars("bad", {1: 0.5}))
    parser = Dying()
    files = files_of(tmp_path, parser=parser)
    warnings = list[str]()
    while (found := files.read({}, final=True)) != CurvesRead() or files.unfinished:
        warnings += found.warnings
    assert parser.questions == following.MOST_FAILURES
    assert warnings[-1] == "the process that reads metric files ended with 1 again; stopped reading"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"[[1]]",
        b'[["x", [], [], false]]',
        b"[[-1, [], [], false]]",
        b"[[999999, [], [], false]]",
        b'[[5, [["a", -1, 0.5, 0]], [], false]]',
        b'[[5, [["a", 1, 2, 0]], [], false]]',
        b'[[5, [["a", 1, 0.5, 1e3]], [], false]]',
        b'[[5, [["a", true, 0.5, 1]], [], false]]',
        b"[[5, [[1, 1, 0.5, 1]], [], false]]",
        b"[[5, 7, [], false]]",
        b'[[5, [], [["rm", ""]], false]]',
        b"[" * 100_000,
    ],
)
def test_an_answer_that_is_none_is_refused(answer: bytes) -> None:
    with pytest.raises(ValueError):
        parsed.parsed_of(answer, [parsed.Part(kind="events", offset=0, size=100)])


@pytest.mark.skipif(not seccomp.is_allowed(), reason="the kernel has no filters of system calls")
def test_a_closed_process_opens_no_file_no_socket_and_no_program() -> None:
    code = """
import os, socket, subprocess, signal, sys
from worker.sandbox import seccomp
seccomp.close()
tries = [lambda: open("/etc/hostname"), lambda: socket.socket(), lambda: socket.socketpair(),
         lambda: os.execv("/bin/true", ["true"]), lambda: os.kill(os.getppid(), 0), lambda: os.listdir("/")]
for each in tries:
    try:
        each()
    except PermissionError:
        continue
    sys.exit("it was allowed")
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
