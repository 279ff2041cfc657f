"""What the controller does again and again."""

from collections.abc import Callable
import logging
from typing import Protocol

from torchyard.contract.errors import Unavailable

_log = logging.getLogger(__name__)


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


def guarded(step: Callable[[], bool], *, of: str, tell: Callable[[], object]) -> bool:
    """Does one step, and returns what it returns. If it fails, has its owner notified: the others go on.

    `of`: the schedule or sweep whose step it is. Raises Unavailable.
    """
    try:
        return step()
    except Unavailable:
        raise
    except Exception:  # noqa: BLE001 - the others go on
        _log.exception("%s is left for the next run", of)
    try:
        tell()
    except Unavailable:
        raise
    except Exception:  # noqa: BLE001 - the others go on
        _log.exception("%s could not be notified that a step failed", of)
    return False
