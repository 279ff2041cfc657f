"""Reads what estimates are made of. All of it raises Unavailable."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta

from sqlalchemy.orm import Session

from scheduling.calibration import Track
from store.queue import calibrations, forecasting
from store.queue.estimates_facts import Seen
from torchyard.contract.devices import DeviceReport
from torchyard.contract.durations import LONGEST_STOP_GRACE

Read = Callable[[], AbstractContextManager[Session]]


def line(
    read: Read, *, here: str, devices: Sequence[DeviceReport], max_stop_grace: timedelta = LONGEST_STOP_GRACE
) -> Seen | None:
    """Returns the cluster with the first jobs in the line as the worker `here` reads it; None if no job waits.

    `devices`: the worker's own, as they are now. `max_stop_grace`: what cuts the jobs' `stop_grace`.
    """
    with read() as session:
        seen = forecasting.first_in_line(session, here=here, observed={here: devices}, max_stop_grace=max_stop_grace)
    return seen if seen.snapshot.line else None


def tracks(read: Read) -> Mapping[int, Track]:
    """Returns how the estimates of each bucket of waits did, of those of which any was scored."""
    with read() as session:
        return calibrations.tracks(session)
