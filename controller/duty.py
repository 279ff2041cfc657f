"""What the controller does again and again."""

from typing import Protocol


class Duty(Protocol):
    """Several controllers may do it at once, and each may be killed at any moment: what it does is in the database."""

    @property
    def interval_s(self) -> float:
        """Seconds between two runs that nothing has asked for."""
        ...

    def run(self) -> bool:
        """Does what is due now. Returns whether there is more, so that it runs again at once.

        It waits for no network but that of the store. Raises Unavailable if the database does not answer.
        """
        ...
