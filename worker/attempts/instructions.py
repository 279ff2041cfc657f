"""What the daemon asks of a runner: written by the daemon's threads, read by the runner's. And their signs of life."""

import threading

from worker.watch import Turns


class Instructions:
    """An instruction is never taken back. For the difference between *detach* and *abandon*, see `lifecycle`."""

    def __init__(self, name: str = "an attempt") -> None:
        """`name`: that of the attempt in a sentence."""
        self.turns = Turns(name)
        """The runner notes each turn, and what it does in a long one."""
        self.reading_turns = Turns(f"the reading of {name}")
        """As `turns`, of the thread that stores what the attempt writes."""
        self.preempt = False
        """Save a checkpoint and go back to the queue."""
        self.urgent = False
        """The worker itself stops, so it cannot wait for a long grace period."""
        self.detach = False
        self.abandon = False
        self.leaving = threading.Event()
        """Set with `detach` or `abandon`. It ends every wait of the runner."""
        self.recheck = False
        """The job's owner may have changed an intent. The runner clears it."""
        self.changed = threading.Event()
        """Set by every method. The runner clears it."""

    def request_preempt(self, *, urgent: bool = False) -> None:
        self.preempt = True
        self.urgent = self.urgent or urgent
        self.changed.set()

    def request_detach(self) -> None:
        self.detach = True
        self._leave()

    def request_abandon(self) -> None:
        self.abandon = True
        self._leave()

    def recheck_intents(self) -> None:
        """Has the runner read the intents of the job's owner now."""
        self.recheck = True
        self.changed.set()

    def wake(self) -> None:
        """Has the runner observe the attempt now, as it may have ended."""
        self.changed.set()

    def note_wait(self) -> None:
        """Notes that one of the threads waits for the database: meanwhile none of them is silent."""
        self.turns.note()
        self.reading_turns.note()

    def _leave(self) -> None:
        self.leaving.set()
        self.changed.set()
