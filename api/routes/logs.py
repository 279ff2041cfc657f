"""Returns lines of a job's output: pages of them, those that match, and all as a file."""

from collections.abc import AsyncGenerator, Generator, Iterator
from typing import Annotated, Literal, cast

from fastapi import Depends, Query
from fastapi.responses import StreamingResponse

from api.auth.callers import FileReader, JobReader
from api.openapi.completion import LOG_FILE
from api.openapi.routers import guarded
from api.parameters.paging import AfterNumber, Limit, number_after
from api.parameters.reads import Parts, ReaderDep, in_turns
from api.present.times import time
from api.services import Services, ServicesDep
from api.transfers.files import disposition
from api.transfers.permits import while_permitted
from store.output import log_search, logs
from store.output.facts import END, Lines, LogFilter
from store.output.log_search import LogSearch
from store.store import Store
from store.team.callers import Caller
from torchyard.contract.errors import Unavailable
from torchyard.contract.telemetry.views import LogPage, LogSearchView

router = guarded("telemetry", Unavailable)
PART_CHARACTERS = 1 << 20

_Number = Annotated[int, Query(ge=0, lt=2**31)]
Before = Annotated[int | None, Query(ge=1, lt=2**63, description="only lines with a number below this")]


async def _filter(
    rank: Annotated[_Number | None, Query(description="only lines of this rank")] = None,
    launcher: Annotated[bool, Query(description="only lines of the launcher, not of a rank")] = False,
    attempt: Annotated[_Number | None, Query(description="only lines of this attempt")] = None,
    stream: Annotated[Literal["stdout", "stderr"] | None, Query(description="only `stdout` or only `stderr`")] = None,
) -> LogFilter:
    return LogFilter(rank=rank, launcher=launcher, attempt=attempt, stream=stream)


Where = Annotated[LogFilter, Depends(_filter)]


@router.get("/jobs/{job_id}/logs")
@in_turns
def list_logs(
    *,
    services: ServicesDep,
    caller: JobReader,
    job_id: str,
    where: Where,
    tail: Annotated[
        int | None, Query(ge=1, le=10_000, description="return this many last lines instead of a page")
    ] = None,
    limit: Limit = 100,
    after: AfterNumber = None,
    before: Before = None,
) -> LogPage:
    """Lists the lines of a job's output, oldest first.

    `after` returns the lines after that number, `before` the newest lines before that number, and `tail` the last
    lines. An answer has at most 8 MiB.
    """
    line = number_after(after)
    with services.store.read() as session:
        if tail is not None:
            page, total = logs.list_lines(session, job_id, caller=caller, where=where, limit=tail, before=END)
            return LogPage(data=[*page.items], total=total)
        page, total = logs.list_lines(
            session, job_id, caller=caller, where=where, limit=limit, after=line, before=before
        )
    following = str(page.items[-1].line) if page.has_more and before is None else None
    return LogPage(data=[*page.items], has_more=page.has_more, next=following, total=total)


@router.get("/jobs/{job_id}/logs/search", response_model=LogSearchView)
@in_turns
def search_logs(
    *,
    services: ServicesDep,
    caller: JobReader,
    job_id: str,
    where: Where,
    q: Annotated[str, Query(min_length=1, max_length=500, description="the text or regular expression to find")],
    regex: Annotated[bool, Query(description="`q` is a regular expression (RE2 syntax)")] = False,
    case: Annotated[bool, Query(description="match case")] = False,
    limit: Limit = 100,
    after: AfterNumber = None,
    before: Before = None,
) -> Parts[LogSearchView]:
    """Finds the lines of output that contain a text, oldest first.

    One request stops after 32 MiB of text, 5,000 stored blocks, 10,000 matches or 2 CPU-seconds. Then `complete` is
    false and `data` may be empty. Send `next` as `after` to continue.
    """
    line = number_after(after)
    pattern = log_search.match_expression(q, case=case) if regex else log_search.match_text(q, case=case)
    with services.store.read() as session:
        end = logs.find_extent(session, job_id, caller=caller).lines + 1
    end = end if before is None else min(before, end)
    searching = LogSearch(job_id, pattern, after=line, before=end, limit=limit, where=where)
    yield from searching.parts(services.store)
    result = searching.result
    return LogSearchView(
        data=result.lines,
        has_more=result.next is not None,
        next=None if result.next is None else str(result.next),
        matches=result.matches,
        first_line=result.first,
        last_line=result.last,
        complete=result.complete,
    )


@router.get("/jobs/{job_id}/logs/download", response_class=StreamingResponse, responses=LOG_FILE)
async def download_logs(
    *,
    services: ServicesDep,
    caller: FileReader,
    reader: ReaderDep,
    job_id: str,
    where: Where,
    timestamps: Annotated[bool, Query(description="begin each line with its time (UTC)")] = False,
) -> StreamingResponse:
    """Sends the stored lines as a file, unchanged. The download stops when the token expires or is revoked."""
    read = reader.stream(_file(services, caller, job_id, where, timestamps=timestamps), caller)
    name = str(await anext(read))
    text = while_permitted(cast("AsyncGenerator[bytes]", read), services, caller, job_id)
    headers = {"Content-Disposition": disposition(name), "Cache-Control": "no-store"}
    return StreamingResponse(text, media_type="text/plain", headers=headers)


def _file(
    services: Services, caller: Caller, job_id: str, where: LogFilter, *, timestamps: bool
) -> Generator[str | bytes]:
    """Yields the name of the file, and then its parts. Raises NotFound."""
    with services.store.read() as session:
        log = logs.find_extent(session, job_id, caller=caller)
    yield f"{log.name}-logs.txt"
    yield from _read_parts(services.store, job_id, where=where, last=log.lines, timestamps=timestamps)


def _read_parts(store: Store, job_id: str, *, where: LogFilter, last: int, timestamps: bool) -> Iterator[bytes]:
    """Yields the lines up to number `last` as plain text.

    No transaction stays open while a slow client reads: each part has its own. A log that is removed meanwhile ends
    early. Raises Unavailable.
    """
    line = 1
    while line <= last:
        text, size = list[str](), 0
        with store.read() as session, logs.read_pieces(session, job_id, line=line, where=where, to=last) as chunks:
            line = last + 1
            for chunk in chunks:
                if size >= PART_CHARACTERS:
                    line = chunk.first
                    break
                text.append(_text(chunk, timestamps=timestamps))
                size += len(chunk.text)
        yield "".join(text).encode()


def _text(chunk: Lines, *, timestamps: bool) -> str:
    if not timestamps:
        return f"{chunk.text}\n"
    stamp = time(chunk.time).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    return "".join(f"{stamp}Z {line}\n" for line in chunk.text.split("\n"))
