"""Listens to the service's stream of wake-ups, in a thread that connects again and again."""

from collections.abc import Callable
import logging
import threading
import time

import httpx2

from store.worker import wire
from torchyard.contract.errors import Unavailable
from worker.outage import KnownOutage
from worker.remote.connection import Connection, error_of, unreachable

_SILENT_S = wire.HEARTBEAT_S + 5.0
"""A stream without a byte for so long is held up by a proxy, or its connection is gone."""
_AGAIN_S = 1.0
_LONGEST_AGAIN_S = 30.0

logger = logging.getLogger(__name__)


class RemoteWakeups:
    """A `worker.service.Wakeups`.

    `woken` is called in its thread, with whether somebody has asked for something; `is_deaf` at each `wait` for which
    none can come.
    """

    def __init__(
        self, connection: Connection, *, woken: Callable[[bool], object], is_deaf: Callable[[], object]
    ) -> None:
        self.asked = False
        self._connection = connection
        self._woken = woken
        self._is_deaf = is_deaf
        self._changed = threading.Condition()
        """Guards the next seven attributes."""
        self._pending = self._pending_asked = self._is_open = self._was_tried = self._closed = False
        self._open_at, self._problem = time.monotonic(), "its stream has ended"
        self._thread = threading.Thread(target=self._listen, name="the stream of wake-ups", daemon=True)
        self._thread.start()

    def wait(self, timeout: float) -> bool:
        with self._changed:
            if not self._was_tried:
                self._changed.wait_for(lambda: self._was_tried or self._pending or self._closed, timeout=timeout)
            if not self._is_open and not self._pending:
                self._is_deaf()
                raise self._silence()
            self._changed.wait_for(lambda: self._pending or self._closed or not self._is_open, timeout=timeout)
            woken, self.asked = self._pending, self._pending_asked
            self._pending = self._pending_asked = False
            return woken

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _silence(self) -> Unavailable:
        """Returns the error of a stream that is not open."""
        error = f"the service sends no wake-ups now: {self._problem}"
        # A restart of the service is no news, and one that does not answer at all is noted by its next verb.
        is_news = time.monotonic() - self._open_at > _SILENT_S and not self._connection.outage.lasts
        return Unavailable(error) if is_news else KnownOutage(error)

    def _listen(self) -> None:
        pause_s = _AGAIN_S
        while not self._closed:
            began = time.monotonic()
            try:
                self._follow()
            except Unavailable as error:
                self._problem = error.message
            except Exception:
                logger.exception("the stream of wake-ups failed")
            self._set_open(False)
            pause_s = _AGAIN_S if time.monotonic() - began > _SILENT_S else min(2 * pause_s, _LONGEST_AGAIN_S)
            with self._changed:
                self._changed.wait_for(lambda: self._closed, timeout=pause_s)

    def _follow(self) -> None:
        """Returns when the stream ends. Raises Unavailable where it breaks, or stays silent."""
        timeout = httpx2.Timeout(_SILENT_S)
        try:
            with self._connection.http.stream("GET", f"{wire.PREFIX}/{wire.EVENTS}", timeout=timeout) as response:
                if response.status_code != httpx2.codes.OK:
                    response.read()
                    raise Unavailable(error_of(response).message)
                for line in response.iter_lines():
                    if self._closed:
                        return
                    if not self._is_open:
                        self._set_open(True)
                    if line.startswith("data:"):
                        self._note(asked=line.removeprefix("data:").strip() == "asked")
        except httpx2.TransportError as error:
            raise unreachable(error) from None

    def _set_open(self, is_open: bool) -> None:
        if is_open:
            self._note(asked=True)  # what came before it was open is not told
        with self._changed:
            if is_open or self._is_open:
                self._open_at = time.monotonic()
            self._is_open, self._was_tried = is_open, True
            self._changed.notify_all()

    def _note(self, *, asked: bool) -> None:
        self._woken(asked)
        with self._changed:
            self._pending = True
            self._pending_asked |= asked
            self._changed.notify_all()
