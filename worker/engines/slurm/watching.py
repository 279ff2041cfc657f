"""Notices the report of attempts that run: one thread looks for all of them."""

from collections.abc import Callable
import os
from pathlib import Path
import threading

_EVERY_S = 0.5


class ReportWatcher:
    """Its thread starts with the first watch, and stays until `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: dict[object, tuple[Path, Callable[[], None]]] = {}
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, report: Path, changed: Callable[[], None]) -> Callable[[], None]:
        """Calls `changed` once when the file is there, at once if it is already. Returns what cancels the watch."""
        if os.path.lexists(report):
            changed()
            return _nothing
        token = object()
        with self._lock:
            self._watches[token] = (report, changed)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="reports of Slurm jobs", daemon=True)
                self._thread.start()
        return lambda: self._cancel(token)

    def close(self) -> None:
        self._closing.set()

    def _cancel(self, token: object) -> None:
        with self._lock:
            self._watches.pop(token, None)

    def _run(self) -> None:
        while not self._closing.wait(_EVERY_S):
            for token, (report, changed) in list(self._watches.items()):
                if os.path.lexists(report) and self._take(token):
                    changed()

    def _take(self, token: object) -> bool:
        with self._lock:
            return self._watches.pop(token, None) is not None


def _nothing() -> None:
    pass
