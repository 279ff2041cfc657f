"""Looks at the processes of all nodes: of a job, never more than one attempt may live, and each rank once."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
import re
import threading

import psutil

_RANK = re.compile(r"torchyard[: ](job_[0-9a-z-]+) attempt ([0-9]+) rank ([0-9]+)")
_PAUSE_S = 0.2


@dataclass
class Watch(threading.Thread):
    """Looks until `close`. `doubled` has a sentence for each violation."""

    doubled: set[str] = field(default_factory=set[str])
    looks: int = 0
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        super().__init__(name="watch", daemon=True)
        self._closing = threading.Event()

    def __hash__(self) -> int:
        return id(self)

    def close(self) -> None:
        self._closing.set()

    def run(self) -> None:
        try:
            while not self._closing.wait(_PAUSE_S):
                self.doubled |= doubled(_commands())
                self.looks += 1
        except BaseException as error:  # noqa: BLE001 the run fails by it, in its own thread
            self.failure = error


def doubled(commands: Collection[str]) -> set[str]:
    """Returns a sentence for each job of which two attempts live, or two processes of one rank."""
    ranks: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for command in commands:
        found = _RANK.match(command)
        if found is not None:
            ranks[found[1]].append((int(found[2]), int(found[3])))
    return {
        f"{job_id}: these attempts and ranks lived at once: {sorted(alive)}"
        for job_id, alive in ranks.items()
        if len({attempt for attempt, _ in alive}) > 1 or len(set(alive)) < len(alive)
    }


def _commands() -> list[str]:
    found: list[str] = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except psutil.NoSuchProcess:
            continue
    return found
