"""`python -P -m worker.sandbox.helper`: the program of root that starts attempts in strict isolation.

It answers the service's user alone, on a socket, with the fixed verbs of `protocol`. Each connection gets a process of
its own: it lives as long as its attempt, also when the helper itself is restarted.
"""

import contextlib
import fcntl
import logging
import os
import signal
import socket
import struct
import sys

from torchyard.contract.errors import ConfigError
from worker.host import process
from worker.sandbox.helper import attempt
from worker.sandbox.helper.check import check_host
from worker.sandbox.helper.config import Config
from worker.sandbox.strict import protocol
from worker.sandbox.strict.protocol import Capabilities, Done, Refusal, Refused, Signal, Start, Status, send

_PEER = struct.Struct("3i")
"""`struct ucred` of unix(7): pid, uid and gid."""
_REQUEST_S = 10.0
_MOST_CONNECTIONS = 1000
_REAP_S = 1.0

logger = logging.getLogger(__name__)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    os.umask(0o077)
    try:
        config = Config.parse()
        config.state.create()
        with (config.state.folder / "helper.lock").open("wb") as lock:
            _lock(lock.fileno())
            lacks = check_host(config)
            with _listener(config) as listener:
                logger.info("listens at %s for the uid %d", config.socket, config.service[0])
                _serve(config, listener, lacks, lock.fileno())
    except (ConfigError, OSError) as error:
        logger.error("%s", error)
        return 1
    return 0


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError("another helper runs with this --state-dir") from None


def _listener(config: Config) -> socket.socket:
    """Returns the socket, which only root and the service's user may connect to. Raises OSError."""
    config.socket.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(config.socket))
    os.chown(config.socket, *config.service)
    listener.listen(128)
    return listener


def _serve(config: Config, listener: socket.socket, lacks: list[str], lock: int) -> None:
    """Forks a process for each connection, for ever."""
    children: set[int] = set()
    listener.settimeout(_REAP_S)
    while True:
        children -= {pid for pid, _ in process.reap_children()}
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        with connection:
            if len(children) >= _MOST_CONNECTIONS:
                continue
            child = os.fork()
            if child == 0:
                listener.close()
                os.close(lock)
                _answer_and_exit(config, connection, lacks)
            children.add(child)


def _answer_and_exit(config: Config, connection: socket.socket, lacks: list[str]) -> None:
    try:
        _answer(config, connection, lacks)
    except (Refusal, ValueError) as error:
        _refuse(connection, str(error))
    except OSError as error:
        _refuse(connection, f"{error.strerror}: {error.filename}" if error.filename else str(error))
    except BaseException:  # nothing may return into the frames of the parent
        logger.exception("a request failed")
    finally:
        os._exit(0)


def _answer(config: Config, connection: socket.socket, lacks: list[str]) -> None:
    """Answers the one request of a connection. Raises Refusal, ValueError and OSError."""
    connection.settimeout(_REQUEST_S)
    request = protocol.receive(connection, Status, Start, Signal)
    connection.settimeout(None)
    _, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    if uid != config.service[0]:
        raise Refusal("only the service's user may ask the helper")
    match request:
        case Status():
            send(connection, _capabilities(config, lacks))
        case Signal():
            send(connection, Done(sent=_signal(config, request)))
        case Start():
            attempt.run(config, connection, request)
        case None:
            pass


def _capabilities(config: Config, lacks: list[str]) -> Capabilities:
    return Capabilities(
        data_dir=str(config.data_dir),
        python=sys.executable,
        network=config.network,
        readable=[str(path) for path in config.allowed],
        writable=[str(path) for path, writable in config.allowed.items() if writable],
        environments=[str(path) for path in config.environments],
        lacks=lacks,
    )


def _signal(config: Config, request: Signal) -> bool:
    """Sends one of the known signals to a process inside an attempt that runs. Raises Refusal."""
    if request.number not in protocol.SIGNALS:
        raise Refusal(f"the helper does not send signal {request.number}")
    if not process.is_alive(request.process):
        return False
    init = config.state.init_of(f"{request.job_id}.{request.attempt}")
    if request.process not in process.descendants(init.pid) or not process.is_alive(init):
        if not process.is_alive(request.process):
            return False  # it has ended a moment ago
        raise Refusal("this process is none of the attempt's")
    return process.send(request.process, signal.Signals(request.number))


def _refuse(connection: socket.socket, why: str) -> None:
    logger.warning("refused a request: %s", why)
    with contextlib.suppress(OSError):
        send(connection, Refused(why=why))


if __name__ == "__main__":
    sys.exit(main())
