"""The JSON of what users had of the devices, and have on disks. Days are those of UTC."""

from collections.abc import Iterator, Sequence
from datetime import date, datetime

from torchyard.contract.states import JobState
from torchyard.contract.wire.view import View


class UsageFigures(View):
    """Device use in device-hours. One hour on two devices is two device-hours."""

    gpu_hours: float
    cpu_slot_hours: float
    gpu_utilization: float | None
    """The mean of the GPUs while they were held, 0…1. Null: none was measured."""
    idle_gpu_hours: float
    """Of the measured ones, those with a utilization below 5%."""


class UsageDay(UsageFigures):
    day: date


class UsageRow(View):
    """The usage of one user, or of one user's jobs with one label."""

    owner: str
    label: str | None
    """As `key=value`. Null: all jobs. A job with two labels counts for both."""
    days: list[UsageDay]
    """Of the asked days, those on which it had devices, the earliest first."""
    period: UsageFigures
    """Of the asked days together."""
    total: UsageFigures
    """Of all days, also earlier ones."""

    def csv_lines(self) -> Iterator[Sequence[object]]:
        """Yields a line of `CSV_COLUMNS` for each of its days."""
        for day in self.days:
            figures = (day.gpu_hours, day.cpu_slot_hours, day.gpu_utilization, day.idle_gpu_hours)
            yield (day.day, self.owner, self.label or "", *figures)


CSV_COLUMNS = ("day", "owner", "label", "gpu_hours", "cpu_slot_hours", "gpu_utilization", "idle_gpu_hours")
"""The first line of usage as CSV."""


class FolderView(View):
    """The working folder of a job on one host."""

    host: str
    """The name of the worker there."""
    size: int
    """Bytes on the disk."""
    measured_at: datetime


class JobUseView(View):
    """The disk use of one job."""

    job_id: str
    name: str
    state: JobState
    stored_bytes: int
    """Of its checkpoints, files and media in the service."""
    folders: list[FolderView]


class DiskUseView(View):
    """The disk use of one user's jobs."""

    stored_bytes: int
    folder_bytes: int
    """Of all working folders on hosts."""
    count: int
    """The jobs that take anything."""
    jobs: list[JobUseView]
    """The jobs that take the most bytes, the largest first."""
