"""Reports the exit of processes: one thread waits for all of them, by their pidfds."""

from collections.abc import Callable
from dataclasses import dataclass
import errno
import logging
import os
import select
import threading

from torchyard.contract.attempts.records import ProcessIdentity
from worker.host import process

_GONE = {errno.ESRCH, errno.EINVAL}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Watch:
    descriptor: int
    callback: Callable[[], None]


class ExitWatcher:
    """Its thread starts with the first watch, and stays."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: dict[int, _Watch] = {}
        """By pidfd. Whoever removes a watch closes the pidfd."""
        self._epoll: select.epoll | None = None

    def watch(self, target: ProcessIdentity, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls `callback` once, from another thread, when the process has exited, or at once if it has already.

        Returns a function that cancels the watch. A call that has begun by then still completes. If the system has no
        descriptor or thread left, nothing is called.
        """
        try:
            descriptor = os.pidfd_open(target.pid)
        except OSError as error:
            if error.errno in _GONE:
                callback()
            else:
                logger.warning("the exit of process %d will be noticed later: %s", target.pid, error)
            return _nothing
        if not process.is_alive(target):  # it is a zombie, or another process has its pid by now
            os.close(descriptor)
            callback()
            return _nothing
        watch = _Watch(descriptor, callback)
        with self._lock:
            epoll = self._started_epoll()
            if epoll is None:
                os.close(descriptor)
                return _nothing
            self._watches[descriptor] = watch
            epoll.register(descriptor, select.EPOLLIN)
        return lambda: self._cancel(watch)

    def _started_epoll(self) -> select.epoll | None:
        if self._epoll is None:
            try:
                epoll = select.epoll()
                threading.Thread(target=self._wait, args=(epoll,), name="exit watcher", daemon=True).start()
            except (OSError, RuntimeError) as error:
                logger.warning("exits of processes will be noticed later: %s", error)
                return None
            self._epoll = epoll
        return self._epoll

    def _wait(self, epoll: select.epoll) -> None:
        while True:
            for descriptor, _ in epoll.poll():
                watch = self._take_exited(descriptor)
                if watch is not None:
                    watch.callback()

    def _take_exited(self, descriptor: int) -> _Watch | None:
        """Removes and returns the watch of a process that has exited.

        Returns None if the watch was cancelled meanwhile and a newer one has the same descriptor.
        """
        with self._lock:
            watch = self._watches.get(descriptor)
            if watch is None or not process.readable([descriptor]):
                return None
            self._remove(watch)
            return watch

    def _cancel(self, watch: _Watch) -> None:
        with self._lock:
            if self._watches.get(watch.descriptor) is watch:
                self._remove(watch)

    def _remove(self, watch: _Watch) -> None:
        assert self._epoll is not None
        del self._watches[watch.descriptor]
        self._epoll.unregister(watch.descriptor)
        os.close(watch.descriptor)


def _nothing() -> None:
    pass
