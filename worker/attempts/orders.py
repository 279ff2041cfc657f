"""What the daemon tells a runner: written by the daemon's thread, read by the runner's."""

import threading


class Orders:
    """Each order stays given. *Detach* and *abandon* are different: see `lifecycle`."""

    def __init__(self) -> None:
        self.preempt = False
        """Save and go back to the queue."""
        self.hurry = False
        """The worker itself stops: it cannot wait long."""
        self.detach = False
        self.abandon = False
        self.gone = threading.Event()
        """Set with `detach` or `abandon`: nothing is waited for any more."""
        self.asked = False
        """The job's owner may want something else by now; cleared by the runner."""
        self.changed = threading.Event()
        """Set with every order, by `look` and by `wake`; cleared by the runner."""

    def give_preempt(self, *, hurry: bool = False) -> None:
        self.preempt = True
        self.hurry = self.hurry or hurry
        self.changed.set()

    def give_detach(self) -> None:
        self.detach = True
        self._leave()

    def give_abandon(self) -> None:
        self.abandon = True
        self._leave()

    def look(self) -> None:
        """Read the intents of the job's owner now."""
        self.asked = True
        self.changed.set()

    def wake(self) -> None:
        """The attempt may have ended."""
        self.changed.set()

    def _leave(self) -> None:
        self.gone.set()
        self.changed.set()
