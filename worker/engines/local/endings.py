"""Who waits for the end of which process: one thread waits for all of them, by their pidfds."""

from collections.abc import Callable
from dataclasses import dataclass
import errno
import logging
import os
import select
import threading

from torchyard.contract.records import ProcessIdentity
from worker.engines.local import process

_GONE = {errno.ESRCH, errno.EINVAL}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Watched:
    descriptor: int
    ended: Callable[[], None]


class Endings:
    """Its thread starts with the first watch, and stays."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[int, _Watched] = {}
        """By the pidfd. Who takes one out of it closes it."""
        self._waiting: select.epoll | None = None

    def watch(self, watched: ProcessIdentity, ended: Callable[[], None]) -> Callable[[], None]:
        """Calls `ended` once, from another thread, when the process has ended; from this one where it has already.

        Answers what takes the watch back; a call that is under way then still comes. Where the system has no
        descriptor left, nothing is called.
        """
        try:
            descriptor = os.pidfd_open(watched.pid)
        except OSError as error:
            if error.errno in _GONE:
                ended()
            else:
                logger.warning("the end of process %d will be seen later: %s", watched.pid, error)
            return _nothing
        if not process.is_alive(watched):  # a zombie, or another that has its pid by now
            os.close(descriptor)
            ended()
            return _nothing
        item = _Watched(descriptor, ended)
        with self._lock:
            waiting = self._started()
            self._watched[descriptor] = item
            waiting.register(descriptor, select.EPOLLIN)
        return lambda: self._take_back(item)

    def _started(self) -> select.epoll:
        if self._waiting is None:
            self._waiting = select.epoll()
            threading.Thread(target=self._wait, args=(self._waiting,), name="endings", daemon=True).start()
        return self._waiting

    def _wait(self, waiting: select.epoll) -> None:
        while True:
            for descriptor, _ in waiting.poll():
                item = self._over(descriptor)
                if item is not None:
                    item.ended()

    def _over(self, descriptor: int) -> _Watched | None:
        """Whose process has ended. None where another watch has the number of one that was taken back meanwhile."""
        with self._lock:
            item = self._watched.get(descriptor)
            if item is None or not process.readable([descriptor]):
                return None
            self._drop(item)
            return item

    def _take_back(self, item: _Watched) -> None:
        with self._lock:
            if self._watched.get(item.descriptor) is item:
                self._drop(item)

    def _drop(self, item: _Watched) -> None:
        assert self._waiting is not None
        del self._watched[item.descriptor]
        self._waiting.unregister(item.descriptor)
        os.close(item.descriptor)


def _nothing() -> None:
    pass
