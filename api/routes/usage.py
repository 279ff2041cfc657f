"""Tells what users had of the devices, and what their jobs take on disks."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import Annotated, Literal

from fastapi import Query
from fastapi.responses import StreamingResponse
from starlette.responses import Response

from api.auth.callers import ClusterFileReader, JobReader, Principal
from api.openapi.completion import CSV_FILE, problems
from api.openapi.routers import guarded
from api.parameters.paging import AfterUsage, Limit, usage_after, usage_cursor
from api.parameters.reads import Parts, ReaderDep, in_turns
from api.present.times import time
from api.services import Services, ServicesDep
from api.transfers.files import disposition
from api.transfers.permits import while_permitted
from store.attempts import folders
from store.attempts.folders_facts import DiskUse
from store.cluster import device_days
from store.cluster.device_days import Asked, Key
from store.cluster.usage_facts import Figures, UsageFacts
from store.store import Store
from torchyard.contract.cluster.usage import (
    CSV_COLUMNS,
    DiskUseView,
    FolderView,
    JobUseView,
    UsageDay,
    UsageFigures,
    UsageRow,
)
from torchyard.contract.errors import Forbidden, Unavailable
from torchyard.contract.states import JobState
from torchyard.contract.team.roles import Role, Scope
from torchyard.contract.wire.schema import NO_NUL
from torchyard.contract.wire.text import csv_of
from torchyard.contract.wire.view import Page

router = guarded("cluster", Unavailable)

_EPOCH = date(1970, 1, 1)
_HOUR_US = 3_600_000_000

MOST_DAYS = 366
_MOST_FIGURES = 100 * MOST_DAYS
"""The most days of all rows of one read. A page has fewer rows rather than more days."""


@router.get("/usage", response_model=Page[UsageRow], responses=CSV_FILE | problems(Forbidden))
async def list_usage(
    *,
    services: ServicesDep,
    caller: ClusterFileReader,
    reader: ReaderDep,
    by: Annotated[
        Literal["owner", "label"],
        Query(
            description="`owner`: one row for each user; `label`: one row for each label of your jobs, or of all "
            "jobs for an administrator"
        ),
    ] = "owner",
    days: Annotated[int, Query(ge=1, le=MOST_DAYS, description="number of days, up to today (UTC)")] = 30,
    owner: Annotated[str | None, Query(max_length=300, pattern=NO_NUL, description="only this user")] = None,
    format: Annotated[
        Literal["json", "csv"], Query(description="`csv`: a file with all pages, one line for each row and day")
    ] = "json",
    limit: Limit = 100,
    after: AfterUsage = None,
) -> Response:
    """Lists the device-hours of users, by name: for each day, for the period, and in total.

    Running attempts count with the time so far. Deleted jobs and disabled users count too. A page has at most 36,600
    days in all rows, so with many `days` it may have fewer than `limit` rows.
    """
    asked = Asked(by_label=by == "label", owner=_owner(caller, by, owner), days=days)
    cursor, most = usage_after(after), _MOST_FIGURES // days
    if format == "json":
        return await reader.answer(_page(services, asked, after=cursor, limit=min(limit, most)), caller)
    text = reader.stream(_csv_parts(services.store, asked, after=cursor, most=min(most, 1000)), caller)
    headers = {"Content-Disposition": disposition("usage.csv"), "Cache-Control": "no-store"}
    return StreamingResponse(while_permitted(text, services, caller), media_type="text/csv", headers=headers)


@router.get("/usage/disk")
@in_turns
def get_disk_use(services: ServicesDep, caller: JobReader, limit: Limit = 100) -> DiskUseView:
    """Returns the disk use of your jobs: stored bytes, and working folders on hosts.

    The largest jobs come first. Workers measure the folders about once a minute.
    """
    with services.store.read() as session:
        use = folders.read_disk_use(session, caller.name, limit=limit)
    return _disk_use(use)


def _page(services: Services, asked: Asked, *, after: Key | None, limit: int) -> Parts[Page[UsageRow]]:
    with services.store.read() as session:
        page = device_days.list_usage(session, asked, after=after, limit=limit)
    yield
    following = usage_cursor(page.items[-1].owner, page.items[-1].label) if page.has_more else None
    return Page[UsageRow](data=[*map(_usage_row, page.items)], has_more=page.has_more, next=following)


def _csv_parts(store: Store, asked: Asked, *, after: Key | None, most: int) -> Generator[bytes]:
    """Yields a line for each day of each row, of at most `most` rows at a time.

    Each part has its own transaction: none stays open while a slow client reads.
    """
    lines: list[Sequence[object]] = [CSV_COLUMNS]
    has_more = True
    while has_more:
        with store.read() as session:
            page = device_days.list_usage(session, asked, after=after, limit=most)
        for facts in page.items:
            lines += _usage_row(facts).csv_lines()
        yield csv_of(lines).encode()
        lines, has_more = [], page.has_more
        after = (page.items[-1].owner, page.items[-1].label) if has_more else None


def _owner(caller: Principal, by: str, owner: str | None) -> str | None:
    """Returns whose rows are shown, None for everyone's. Labels may be those of private jobs. Raises Forbidden."""
    if by == "owner":
        return owner
    if Scope.JOBS_READ not in caller.scopes:
        raise Forbidden(f"labels of jobs need the scope {Scope.JOBS_READ}, which your role or your token does not have")
    if caller.role is Role.ADMIN:
        return owner
    if owner not in {None, caller.name}:
        raise Forbidden("only administrators may see the labels of another user's jobs")
    return caller.name


def _usage_row(facts: UsageFacts) -> UsageRow:
    return UsageRow(
        owner=facts.owner,
        label=facts.label or None,
        days=[_day(day, kinds) for day, kinds in facts.days.items()],
        period=_figures(*_sums(facts.days.values())),
        total=_figures(*_sums([facts.total])),
    )


def _disk_use(facts: DiskUse) -> DiskUseView:
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
