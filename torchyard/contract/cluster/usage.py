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
    """Mean utilization of the GPUs while jobs had them, 0…1. Null if it was not measured."""
    idle_gpu_hours: float
    """GPU-hours with a utilization below 5%."""


class UsageDay(UsageFigures):
    day: date


class UsageRow(View):
    """The usage of one user, or of one user's jobs with one label."""

    owner: str
    label: str | None
    """The label as `key=value`; null: all jobs. A job with two labels counts in both rows."""
    days: list[UsageDay]
    """The days with any use, earliest first."""
    period: UsageFigures
    """Sum of the requested days."""
    total: UsageFigures
    """Sum of all days, including earlier ones."""

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
    """Name of the worker on the host."""
    size: int
    """Size on disk in bytes."""
    measured_at: datetime


class JobUseView(View):
    """The disk use of one job."""

    job_id: str
    name: str
    state: JobState
    stored_bytes: int
    """Bytes of its checkpoints, files and media in the service."""
    folders: list[FolderView]


class DiskUseView(View):
    """The disk use of one user's jobs."""

    stored_bytes: int
    folder_bytes: int
    """Bytes of all working folders on hosts."""
    count: int
    """Number of jobs that use disk space."""
    jobs: list[JobUseView]
    """The largest jobs, largest first."""
