"""Finds and ends what a test has started."""

from datetime import timedelta

import psutil

from torchyard.contract.attempts.records import ProcessIdentity
from worker.host import process


class Children:
    """The children of this process that started after this was made, and have `argument`.

    Other tests have left theirs beside them, which may end at any time, and which nobody may have waited for.
    """

    def __init__(self, argument: str) -> None:
        self._argument = argument
        self._others = set(psutil.Process().children())

    def running(self) -> list[psutil.Process]:
        return [child for child in psutil.Process().children() if child not in self._others and self._has(child)]

    def _has(self, child: psutil.Process) -> bool:
        try:
            return self._argument in child.cmdline()
        except psutil.NoSuchProcess:  # it has ended: psutil says so of a zombie too
            return False


def kill_attempt(job_id: str, attempt: int) -> list[ProcessIdentity]:
    """Kills every process of an attempt, its supervisor included. Returns what is alive after half a minute."""
    return process.kill_all(lambda: process.find(job_id, attempt), timeout=timedelta(seconds=30))
