"""A process of its own that answers questions about what others wrote, within limits of time and memory.

`serve` is what it runs. Questions and answers are bytes.
"""

from collections.abc import Callable, Mapping
import contextlib
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from typing import IO
import weakref

Answer = Callable[[bytes], bytes]
"""Answers a question."""

_ENVIRONMENT = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""All that it has of the variables of who starts it: no secret is among them."""
_QUESTION = struct.Struct("<QI")
"""How many bytes a question has, and how many seconds of a processor it may take."""
_ANSWER = struct.Struct("<Q")
"""How many bytes an answer has."""
_CHUNK = 1 << 20
_WALL_TIMES = 10
"""A second of a processor may take so many of the wall, as others want it too."""
_LEAST_WALL_S = 60.0
_LAST_S = 5.0
"""From the end of what it writes to its own end."""


class Ended(Exception):
    """The process ended before its answer was complete, with this exit code."""

    def __init__(self, code: int, *, too_long: bool = False) -> None:
        super().__init__(f"the process ended with {code}")
        self.code = code
        self.too_long = too_long
        """Whether it was ended because its answer has more bytes than it may."""

    @property
    def too_slow(self) -> bool:
        """Whether it took more time of a processor than it may."""
        return self.code == -signal.SIGXCPU


class Confined:
    """A process that is started when it is asked, and again when it has ended. Threads may share it."""

    def __init__(
        self, module: str, *, order: bytes = b"", load_cpu_s: int, environment: Mapping[str, str] | None = None
    ) -> None:
        """`module`: what it runs, which calls `serve`. `order`: what it prepares first, in `load_cpu_s` at most.

        `environment`: variables besides those that it has of this process.
        """
        self._command = [sys.executable, "-P", "-m", module]
        self._order = order
        self._load_cpu_s = load_cpu_s
        self._variables = environment or {}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None
        """Ends the process, once."""
        self._owner = 0
        """The process that has started it: a fork of it starts one of its own."""

    def ask(self, question: bytes, *, cpu_s: int, most: int, wall_s: float | None = None) -> bytes:
        """Returns the answer. It may take `cpu_s` seconds of a processor, and has `most` bytes at most.

        `wall_s`: how long to wait for it. Without it, long enough for a processor that others want, too.

        Raises Ended: then the next call starts another process.
        """
        with self._lock:
            patience = _LEAST_WALL_S + _WALL_TIMES * (self._load_cpu_s + cpu_s) if wall_s is None else wall_s
            until = time.monotonic() + patience
            process = self._started(until)
            try:
                _send(process, question, cpu_s, until)
                answer = _answer(process, most=most, until=until)
            except BaseException:  # who asks next would get this answer
                self._end()
                self._process = None
                raise
            if answer is None or len(answer) > most:
                self._end()
                self._process = None
                raise Ended(process.returncode, too_long=answer is not None)
            return answer

    def close(self) -> None:
        """Ends the process. Another question starts one again."""
        if (process := self._process) is not None and self._owner == os.getpid():
            process.kill()  # who waits for its answer has waited enough
            with self._lock:
                self._end()

    def _started(self, until: float) -> "subprocess.Popen[bytes]":
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self._end()
            variables = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**variables, **self._variables},
            )
            self._process, self._owner = process, os.getpid()
            self._end = weakref.finalize(self, _end, process, owner=os.getpid())
            _send(process, self._order, self._load_cpu_s, until)
        return self._process


def serve(prepare: Callable[[bytes], Answer], *, memory_bytes: int, nice: int = 0) -> None:
    """Prepares what the order says, and answers questions until nobody asks any more, within their limits."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: who asks ends it
    os.nice(nice)
    answer: Answer | None = None
    while (question := _question(sys.stdin.buffer)) is not None:
        if answer is None:
            answer = prepare(question)
            continue
        made = answer(question)
        sys.stdout.buffer.write(_ANSWER.pack(len(made)))
        sys.stdout.buffer.write(made)
        sys.stdout.buffer.flush()


def _send(process: "subprocess.Popen[bytes]", question: bytes, cpu_s: int, until: float) -> None:
    """Sends what it can until then: that the process has ended, or takes nothing, is seen when its answer is read."""
    assert process.stdin is not None
    pipe = process.stdin.fileno()
    os.set_blocking(pipe, False)
    ready = select.poll()
    ready.register(pipe, select.POLLOUT)
    with contextlib.suppress(BrokenPipeError):
        for part in (_QUESTION.pack(len(question), cpu_s), question):
            rest = memoryview(part)
            while rest:
                if not ready.poll(max(0.0, until - time.monotonic()) * 1e3):
                    return
                rest = rest[os.write(pipe, rest[:_CHUNK]) :]


def _answer(process: "subprocess.Popen[bytes]", *, most: int, until: float) -> bytes | None:
    """Returns the answer, of a longer one no more than `most` bytes and one. None if the process ends before."""
    head = _read(process, _ANSWER.size, until)
    if head is None:
        return None
    (size,) = _ANSWER.unpack(head)
    return _read(process, min(size, most + 1), until)


def _read(process: "subprocess.Popen[bytes]", size: int, until: float) -> bytes | None:
    assert process.stdout is not None
    pipe, parts = process.stdout.fileno(), list[bytes]()
    ready = select.poll()
    ready.register(pipe, select.POLLIN)
    while size:
        if not ready.poll(max(0.0, until - time.monotonic()) * 1e3):
            return None
        part = os.read(pipe, min(size, _CHUNK))
        if not part:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LAST_S)  # for its own exit code
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _question(pipe: IO[bytes]) -> bytes | None:
    """Returns the next question, for which it sets the limit of time. None if there is none any more."""
    head = pipe.read(_QUESTION.size)
    if len(head) < _QUESTION.size:
        return None
    size, cpu_s = _QUESTION.unpack(head)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 1 + cpu_s, resource.RLIM_INFINITY))
    question = pipe.read(size)
    return question if len(question) == size else None


def _end(process: "subprocess.Popen[bytes]", owner: int) -> None:
    if owner != os.getpid():
        return  # a fork of the process that has started it
    process.kill()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
    process.wait()
