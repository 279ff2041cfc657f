"""Asks the helper: the side of the worker and of the supervisors, which have no privilege."""

import errno
from pathlib import Path
import signal
import socket
from typing import TypeVar

from torchyard.contract.attempts.records import ProcessIdentity, Strict
from worker.sandbox.strict.protocol import (
    Capabilities,
    Done,
    Message,
    Refused,
    Signal,
    Start,
    Started,
    Status,
    receive,
    send,
)

T = TypeVar("T", bound=Message)

_ANSWER_S = 30.0


class HelperError(OSError):
    """The helper refuses, or does not answer as it should."""


def status(helper: Path) -> Capabilities:
    """Returns what the helper at this socket does and can do. Raises OSError."""
    with _connect(helper) as connection:
        return _ask(connection, Status(), Capabilities)


def start(strict: Strict, *, job_id: str, attempt: int) -> tuple[socket.socket, Started]:
    """Has the helper start a prepared attempt. Raises OSError.

    Returns the connection too: its end kills the attempt.
    """
    connection = _connect(Path(strict.helper))
    try:
        return connection, _ask(connection, Start(job_id=job_id, attempt=attempt), Started)
    except BaseException:
        connection.close()
        raise


def signal_process(
    strict: Strict, process: ProcessIdentity, number: signal.Signals, *, job_id: str, attempt: int
) -> bool:
    """Signals exactly that process of the attempt. Returns False if it has ended. Raises OSError."""
    with _connect(Path(strict.helper)) as connection:
        request = Signal(job_id=job_id, attempt=attempt, process=process, number=int(number))
        return _ask(connection, request, Done).sent


def _connect(helper: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(_ANSWER_S)
        connection.connect(str(helper))
    except OSError as error:
        connection.close()
        raise HelperError(error.errno or errno.EIO, f"the helper at {helper} cannot be reached: {error}") from None
    return connection


def _ask(connection: socket.socket, request: Message, kind: type[T]) -> T:
    try:
        send(connection, request)
        answer = receive(connection, kind, Refused)
    except ValueError as error:
        raise HelperError(errno.EPROTO, f"the helper's answer cannot be read: {error}") from None
    except TimeoutError:
        raise HelperError(errno.ETIMEDOUT, f"the helper did not answer within {_ANSWER_S:g} s") from None
    if answer is None:
        raise HelperError(errno.EIO, "the helper closed the connection")
    if isinstance(answer, Refused):
        raise HelperError(errno.EACCES, answer.why)
    return answer
