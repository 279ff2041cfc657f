"""Has one process, which is started at the first question, parse what an attempt wrote. Nobody waits long."""

import threading
from typing import Protocol

from torchyard.host.confined import Confined, Ended

_MODULE = "worker.curves.parsing"
"""Not imported here: what it needs, the daemon does not."""
_LOAD_CPU_S = _CPU_S = 5
_WALL_S = 60.0
"""A process that has not answered by then is ended: it was stopped, or has no processor."""
_MOST_BYTES = 1 << 25


class Failed(Exception):
    """There is no answer. The next question starts another process."""


class Parser(Protocol):
    """Answers one question after another."""

    def ask(self, question: bytes) -> None:
        """Begins with a question. Its answer is to be taken before the next."""
        ...

    def answer(self, wait_s: float) -> bytes | None:
        """Returns the answer, or None if it is not there after `wait_s`. Raises Failed."""
        ...

    def close(self) -> None: ...


class Child:
    """Parses in a process of its own. A thread waits for it, as it may be stopped."""

    def __init__(self, module: str = _MODULE) -> None:
        """`module`: the module that the process runs."""
        self._process = Confined(module, load_cpu_s=_LOAD_CPU_S)
        self._asked: _Asked | None = None

    def ask(self, question: bytes) -> None:
        """Raises Failed if the system has no thread left."""
        self._asked = _Asked(self._process, question)
        try:
            self._asked.start()
        except RuntimeError as error:
            raise Failed(str(error)) from None

    def answer(self, wait_s: float) -> bytes | None:
        assert self._asked is not None
        self._asked.join(wait_s)
        if self._asked.is_alive():
            return None
        if self._asked.answer is None:
            raise Failed(self._asked.failure)
        return self._asked.answer

    def close(self) -> None:
        """Ends the process."""
        self._process.close()


class _Asked(threading.Thread):
    def __init__(self, process: Confined, question: bytes) -> None:
        super().__init__(daemon=True, name="curves")
        self._process = process
        self._question = question
        self.answer: bytes | None = None
        self.failure = ""

    def run(self) -> None:
        try:
            self.answer = self._process.ask(self._question, cpu_s=_CPU_S, most=_MOST_BYTES, wall_s=_WALL_S)
        except Ended as end:
            self.failure = f"needs more than {_CPU_S} s of a processor" if end.too_slow else f"ended with {end.code}"
        except OSError as error:
            self.failure = f"cannot be started: {error}"
        self._question = b""
