"""A process that answers questions about what others wrote has limits, and another one starts when it has ended."""

from collections.abc import Iterator
from contextlib import closing
import os
from pathlib import Path
import signal

import psutil
import pytest

from tests.processes import Children
from torchyard.host import confined
from torchyard.host.confined import Confined, Ended

_PROGRAM = """
import os, sys, time
from torchyard.host.confined import serve

def prepare(order):
    def answer(question):
        if question == b"spin":
            while True: pass
        if question == b"fill":
            bytearray(8 << 30)
        if question == b"variables":
            return "\\n".join(sorted(os.environ)).encode()
        if question == b"long":
            return bytes(1000)
        if question == b"wait":
            print("waits", file=sys.stderr)
            time.sleep(1000)
        return order + question[::-1]
    return answer

serve(prepare, memory_bytes=1 << 30)
"""


@pytest.fixture
def children() -> Children:
    return Children("answers")


@pytest.fixture
def asked(tmp_path: Path, children: Children) -> Iterator[Confined]:
    (tmp_path / "answers.py").write_text(_PROGRAM)
    made = Confined("answers", order=b"order ", load_cpu_s=30, environment={"PYTHONPATH": str(tmp_path)})
    with closing(made):
        yield made
    assert children.running() == []


def _ask(asked: Confined, question: bytes, *, most: int = 100, cpu_s: int = 5) -> bytes:
    return asked.ask(question, cpu_s=cpu_s, most=most)


def test_one_process_answers_all_questions_after_its_order(asked: Confined, children: Children) -> None:
    large = os.urandom(3 << 20)
    assert _ask(asked, b"abc") == b"order cba"
    (child,) = set(children.running())
    assert _ask(asked, large, most=4 << 20) == b"order " + large[::-1]
    assert _ask(asked, b"") == b"order "
    assert children.running() == [child]


@pytest.mark.parametrize(
    ("question", "too_slow", "too_long"),
    [pytest.param(b"spin", True, False, marks=pytest.mark.thorough), (b"fill", False, False), (b"long", False, True)],
)
def test_what_takes_more_than_it_may_ends_the_process_and_the_next_one_answers(
    asked: Confined, question: bytes, too_slow: bool, too_long: bool, children: Children
) -> None:
    assert _ask(asked, b"a") == b"order a"
    with pytest.raises(Ended) as ended:
        _ask(asked, question, cpu_s=0)
    assert (ended.value.too_slow, ended.value.too_long) == (too_slow, too_long)
    assert children.running() == []
    assert _ask(asked, b"b") == b"order b"


def test_an_answer_that_could_not_be_read_is_nobody_elses(asked: Confined, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> bytes:
        raise MemoryError

    assert _ask(asked, b"a") == b"order a"
    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(confined, "_read", fail)
        _ask(asked, b"secret")
    assert _ask(asked, b"b") == b"order b"


def test_a_process_that_was_killed_while_nobody_asked_is_replaced(asked: Confined, children: Children) -> None:
    assert _ask(asked, b"a") == b"order a"
    (child,) = children.running()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert _ask(asked, b"b") == b"order b"
    assert not psutil.pid_exists(child.pid)


def test_a_process_that_takes_no_question_is_ended(
    asked: Confined, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _ask(asked, b"a") == b"order a"
    children.running()[0].suspend()
    with monkeypatch.context() as patch, pytest.raises(Ended):
        patch.setattr(confined, "_LEAST_WALL_S", 0.1)
        patch.setattr(confined, "_WALL_TIMES", 0)
        _ask(asked, bytes(3 << 20))  # more than a pipe holds
    assert children.running() == []
    assert _ask(asked, b"b") == b"order b"


def test_an_interrupt_of_a_terminal_ends_nothing(asked: Confined, children: Children) -> None:
    assert _ask(asked, b"a") == b"order a"
    children.running()[0].send_signal(signal.SIGINT)
    assert _ask(asked, b"b") == b"order b"


def test_it_has_no_variable_that_may_be_a_secret(asked: Confined, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHYARD_TOKEN", "secret")
    found = _ask(asked, b"variables", most=10_000).decode().split()
    assert "PATH" in found
    assert [name for name in found if "TORCHYARD" in name] == []
