"""The operations on a job's events, metrics, log and stacks."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import datetime
import time

from torchyard.client.calls import jobs as jobs_calls
from torchyard.client.calls import telemetry as calls
from torchyard.client.calls.telemetry import LogLines, LogStream
from torchyard.client.connection import Connection
from torchyard.client.core.base import Core
from torchyard.client.stream import StreamItem, StreamReader, Update, followed_kinds
from torchyard.contract.telemetry.curves import CurvesView
from torchyard.contract.telemetry.views import (
    EndView,
    EventView,
    LogCurvesView,
    LogLine,
    LogMatch,
    MetricsView,
    StacksView,
    StoredKind,
)

_STACKS_POLL_S = 0.2


class TelemetryCore(Core):
    """Operations on what a job tells while it runs."""

    def events(self, job_id: str, *, after: int = 0) -> AsyncGenerator[EventView]:
        """Yields the job's events with a `seq` above `after`, in order."""
        return self._connection.pages(calls.events(job_id, after=after))

    async def metrics(
        self,
        job_id: str,
        *,
        keys: Sequence[str] = (),
        from_step: int | None = None,
        to_step: int | None = None,
        max_points: int | None = None,
        attempt: int | None = None,
    ) -> MetricsView:
        """Returns the job's series, each downsampled to `max_points`; without it, to the server's default."""
        call = calls.metrics(
            job_id, keys=keys, from_step=from_step, to_step=to_step, max_points=max_points, attempt=attempt
        )
        return await self._connection.answer(call)

    async def make_log_curves(self, job_id: str, pattern: str) -> LogCurvesView:
        """Makes curves of what an expression of RE2 finds in the stored lines of a job that has ended.

        A metric that has a curve stays as it is. Raises Conflict if the job has not ended, InvalidRequest, and
        Forbidden if the job belongs to another user.
        """
        return await self._connection.answer(calls.make_log_curves(job_id, pattern))

    async def curves(
        self,
        job_ids: Sequence[str],
        *,
        keys: Sequence[str] = (),
        smooth: float = 0.0,
        max_points: int | None = None,
        from_step: int | None = None,
        to_step: int | None = None,
        attempt: int | None = None,
        hidden: bool = False,
    ) -> CurvesView:
        """Returns which metrics the jobs have, and in columns those that `keys` names: at most 50 jobs, 200 keys.

        A series of more than `max_points` is answered in buckets of neighbouring points, with their mean, least and
        greatest value. With `smooth`, from 0 to less than 1, there is a moving average, too. `hidden` adds what later
        attempts hide.
        """
        call = calls.curves(
            job_ids,
            keys=keys,
            hidden=hidden,
            smooth=smooth or None,
            max_points=max_points,
            from_step=from_step,
            to_step=to_step,
            attempt=attempt,
        )
        return await self._connection.answer(call)

    def logs(
        self,
        job_id: str,
        *,
        tail: int | None = None,
        rank: int | None = None,
        after: int | None = None,
        before: int | None = None,
        attempt: int | None = None,
        stream: LogStream | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[LogLine]:
        """Yields lines of output, oldest first: the last `tail` lines, or the first `limit` of those numbered above
        `after`, or the last `limit` of those numbered below `before`, of which there are at most 1,000.
        """
        where = LogLines(rank=rank, attempt=attempt, stream=stream)
        if tail is not None:
            return self._connection.pages(calls.log_tail(job_id, tail=tail, where=where))
        if before is not None:
            return self._connection.pages(calls.log_before(job_id, before=before, where=where, limit=limit))
        return self._connection.pages(calls.log(job_id, after=after or 0, where=where, limit=limit), limit=limit)

    def search_logs(
        self,
        job_id: str,
        pattern: str,
        *,
        regex: bool = False,
        case: bool = False,
        rank: int | None = None,
        attempt: int | None = None,
        stream: LogStream | None = None,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        searched: Callable[[int], None] | None = None,
    ) -> AsyncGenerator[LogMatch]:
        """Yields the first `limit` lines that contain `pattern`, oldest first, with the places of the matches.

        `regex`: the pattern is a regular expression in RE2's syntax. `case`: capital and small letters differ. `after`
        and `before` are numbers of lines. A long search takes several requests: before each further one, `searched` is
        told the line up to which the log is searched. Raises InvalidRequest.
        """
        call = calls.search_logs(
            job_id,
            pattern,
            regex=regex,
            case=case,
            where=LogLines(rank=rank, attempt=attempt, stream=stream),
            after=after,
            before=before,
            limit=limit,
        )

        def going_on(cursor: str) -> None:
            if searched is not None:
                searched(int(cursor))

        return self._connection.pages(call, limit=limit, going_on=going_on)

    async def stacks(self, job_id: str, *, timeout: float = 15.0) -> StacksView:  # noqa: ASYNC109 - as in Client
        """Returns the Python stacks of every rank of a running job, as they are now. The job goes on.

        Raises TimeoutError if the job's worker has not answered after `timeout` seconds, Conflict if the job does not
        run, and Forbidden if it belongs to another user.
        """
        deadline = time.monotonic() + timeout
        found = await self._connection.answer(calls.request_stacks(job_id))
        while found.taken_at is None:
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"the worker of job {job_id} has not answered within {timeout:g} s: it prepares the job, or is away"
                )
            await self._connection.sleep(_STACKS_POLL_S)
            found = await self._connection.answer(calls.stacks(job_id))
        return found

    def stream(
        self, job_id: str, *, after: int = 0, only: Sequence[StoredKind] = (), live: bool = False
    ) -> AsyncGenerator[StreamItem]:
        """Yields everything that the job stored after position `after`, in order and as it is stored; at last its end.

        `only` selects kinds. `live`: with the log, also the newest text of lines that have no end so far, such as
        progress bars, as `LiveLine`s, which nothing stores. If the connection breaks or the server restarts, no other
        item is lost or repeated.
        """
        return self._connection.events(calls.stream_path(job_id), StreamReader(after=after, only=only, live=live))

    async def follow(
        self, job_id: str, *, logs: bool = True, metrics: bool = True, live: bool = False
    ) -> AsyncGenerator[Update]:
        """Yields the job's events, metric points and log lines, each once, from its beginning to its end.

        A job that has not ended is yielded first; the last item is the job in its final state. `live` is as in
        `stream`.
        """
        job = await self._connection.answer(jobs_calls.get(job_id))
        if not job.state.terminal:
            yield job
        async with aclosing(self.stream(job_id, only=followed_kinds(logs=logs, metrics=metrics), live=live)) as items:
            async for item in items:
                if not isinstance(item.view, EndView):
                    yield item.view
        yield await self._connection.answer(jobs_calls.get(job_id))

    async def follow_logs(self, job_id: str, *, after: int = 0, rank: int | None = None) -> AsyncGenerator[LogLine]:
        """Yields the lines of output numbered above `after` as they are stored, until the job has ended."""
        # A line's position is never below its number.
        async with aclosing(self.stream(job_id, after=after, only=["log"])) as items:
            async for item in items:
                line = item.view
                if isinstance(line, LogLine) and line.line > after and rank in {None, line.rank}:
                    yield line


async def lines_before(connection: Connection, job_id: str, moment: datetime) -> int:
    """Returns the number of the last line that was stored before `moment`, or 0. Fetches few lines."""
    newest = (await connection.answer(calls.log_tail(job_id, tail=1, where=LogLines()))).data
    low, high = 0, newest[-1].line if newest else 0
    while low < high:
        middle = (low + high) // 2
        found = await connection.answer(calls.log(job_id, after=middle, where=LogLines(), limit=1))
        if found.data[0].time < moment:
            low = middle + 1
        else:
            high = middle
    return low
