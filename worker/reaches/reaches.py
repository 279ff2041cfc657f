"""The reaches into one attempt: it brings what users have started in it to the meetings, each in a thread."""

from collections.abc import Sequence
import logging
import threading
import time

from store.worker.records import ReachOrder
from torchyard.contract.errors import ConfigError
from torchyard.contract.reach.frames import Frame, Kind
from torchyard.contract.reach.orders import Call, Hello
from worker.engines.base import Engine, Handle
from worker.reaches.meeting import NotMet, NotTheService, Passage, ServiceAddress, met, refuse

_MOST = 100
"""Threads of one attempt at once."""
_PATIENCE_S = 25.0
"""How long it is tried to reach the service: the meeting waits for 30 s."""
_AGAIN_S = 1.0
_END_S = 5.0
"""How long what is ended may take to say so."""

logger = logging.getLogger(__name__)


class Reaches:
    """The runner's thread calls these, and waits for nothing."""

    def __init__(self, engine: Engine, address: ServiceAddress) -> None:
        self._engine = engine
        self._address = address
        self._handle: Handle | None = None
        self._done = set[tuple[str, str, int]]()
        """The orders that were carried out, and are told still."""
        self._threads = set[threading.Thread]()
        self._passages = set[Passage]()
        self._lock = threading.Lock()
        """Guards the two."""
        self._closed = threading.Event()

    def follow(self, handle: Handle) -> None:
        """Takes where the attempt runs: before that no order is carried out."""
        self._handle = handle

    def carry_out(self, orders: Sequence[ReachOrder]) -> None:
        """Begins with each order that is new. One for which there is no room is told again."""
        if self._handle is None or self._closed.is_set():
            return
        named = {(order.kind, order.id, order.meeting): order for order in orders}
        self._done &= named.keys()
        for name, order in named.items():
            if name not in self._done and self._start(order, self._handle):
                self._done.add(name)

    def close(self) -> None:
        """Ends all meetings. What runs in the attempt goes on."""
        self._closed.set()
        with self._lock:
            passages = [*self._passages]
        for passage in passages:
            passage.cut()

    def _start(self, order: ReachOrder, handle: Handle) -> bool:
        with self._lock:
            if len(self._threads) >= _MOST:
                return False
            thread = threading.Thread(target=self._run, args=(order, handle), name=order.id, daemon=True)
            self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:  # the system has none left
            with self._lock:
                self._threads.discard(thread)
            return False
        return True

    def _run(self, order: ReachOrder, handle: Handle) -> None:
        try:
            if order.kind == "end":
                _end(self._engine, handle, order.id)
            else:
                self._meet(order, handle)
        except NotTheService as error:
            logger.error("%s: closed a connection: %s: %s", order.id, self._address.url, error)
        except NotMet as error:
            logger.warning("%s: missed a connection: %s", order.id, error)
        except Exception:
            logger.exception("%s: a connection failed", order.id)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _meet(self, order: ReachOrder, handle: Handle) -> None:
        """Raises NotMet and NotTheService."""
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                with met(self._address, order) as connection:
                    try:
                        handler = self._engine.reach(handle, _call(order))
                    except (OSError, ConfigError) as error:
                        refuse(connection, _why(error))
                        return
                    with handler:
                        self._pass(Passage(connection, handler))
                    return
            except NotMet:
                if time.monotonic() > until or self._closed.wait(_AGAIN_S):
                    raise

    def _pass(self, passage: Passage) -> None:
        with self._lock:
            self._passages.add(passage)
        try:
            if not self._closed.is_set():
                passage.run()
        finally:
            with self._lock:
                self._passages.discard(passage)


def _call(order: ReachOrder) -> Call:
    if order.kind == "start":
        return Call(kind="start", reach=order.id, order=order.order)
    return Call(kind="join", reach=order.id)


def _why(error: OSError | ConfigError) -> str:
    if isinstance(error, ConfigError):
        return error.message
    return f"nothing can be started in this attempt now: {error.strerror or error}"


def _end(engine: Engine, handle: Handle, reach_id: str) -> None:
    """Ends what a reach has started, whose user may not come again."""
    try:
        handler = engine.reach(handle, Call(kind="join", reach=reach_id))
    except (OSError, ConfigError):
        return  # it has ended, or nothing of it was started
    with handler:
        handler.settimeout(_END_S)
        try:
            handler.sendall(Frame(Kind.HELLO, content=Hello().to_json().encode()).encode() + Frame(Kind.CLOSE).encode())
            while handler.recv(1 << 16):
                pass
        except OSError as error:
            logger.warning("%s does not end: %s", reach_id, error)
