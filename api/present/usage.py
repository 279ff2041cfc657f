"""The views of what users had of the devices, and have on disks."""

from collections.abc import Iterable, Mapping
from datetime import date, timedelta

from api.present.times import time
from store.attempts.folders_facts import DiskUse
from store.cluster.usage_facts import Figures, UsageFacts
from torchyard.contract.job import JobState
from torchyard.contract.views.usage import DiskUseView, FolderView, JobUseView, UsageDay, UsageFigures, UsageRow

_EPOCH = date(1970, 1, 1)
_HOUR_US = 3_600_000_000


def row(facts: UsageFacts) -> UsageRow:
    """Returns the view of what one user had."""
    return UsageRow(
        owner=facts.owner,
        label=facts.label or None,
        days=[_day(day, kinds) for day, kinds in facts.days.items()],
        period=_figures(*_sums(facts.days.values())),
        total=_figures(*_sums([facts.total])),
    )


def disk_use(facts: DiskUse) -> DiskUseView:
    """Returns the view of what the jobs of one user take."""
    jobs = [
        JobUseView(
            job_id=job.job_id,
            name=job.name,
            state=JobState(job.state),
            stored_bytes=job.stored,
            folders=[
                FolderView(host=each.host, size=each.size, measured_at=time(each.measured_at)) for each in job.folders
            ],
        )
        for job in facts.jobs
    ]
    return DiskUseView(stored_bytes=facts.stored, folder_bytes=facts.folders, count=facts.count, jobs=jobs)


def _day(day: int, kinds: Mapping[str, Figures]) -> UsageDay:
    return UsageDay(day=_EPOCH + timedelta(days=day), **_figures(*_sums([kinds])).model_dump())


def _sums(days: Iterable[Mapping[str, Figures]]) -> tuple[Figures, Figures]:
    """Returns the sums of GPUs and of CPU slots."""
    gpus = slots = Figures()
    for kinds in days:
        gpus, slots = gpus.plus(kinds.get("cuda", Figures())), slots.plus(kinds.get("cpu", Figures()))
    return gpus, slots


def _figures(gpus: Figures, slots: Figures) -> UsageFigures:
    return UsageFigures(
        gpu_hours=_hours(gpus.held_us),
        cpu_slot_hours=_hours(slots.held_us),
        gpu_utilization=round(min(1.0, gpus.busy_us / gpus.measured_us), 4) if gpus.measured_us else None,
        idle_gpu_hours=_hours(gpus.idle_us),
    )


def _hours(us: int) -> float:
    return round(us / _HOUR_US, 6)
