"""Operations on the events, metrics, log and stacks of a job."""

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
    """Operations on the events, metrics and log of a job. A `job_id` is the full id of a job."""

    def events(self, job_id: str, *, after: int = 0) -> AsyncGenerator[EventView]:
        """Yields the events of a job, in order.

        Args:
            job_id: The job's id.
            after: Only events with a higher `seq`.

        Example:
            >>> [event.data["to"] for event in client.jobs.events(job.id) if event.type == "state"][-1]
            'succeeded'
        """
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
        """Returns metrics of a job by step.

        Args:
            job_id: The job's id.
            keys: The keys; none: all.
            from_step: The first step.
            to_step: The last step.
            max_points: Maximum points of each metric; None: 1500. A longer metric keeps the minimum and maximum of each
                bucket.
            attempt: Only points of this attempt.

        Example:
            >>> [point.value for point in client.jobs.metrics(job.id, keys=["train/loss"]).data[0].points]
            [2.5, 1.25]
        """
        call = calls.metrics(
            job_id, keys=keys, from_step=from_step, to_step=to_step, max_points=max_points, attempt=attempt
        )
        return await self._connection.answer(call)

    async def make_log_curves(self, job_id: str, pattern: str) -> LogCurvesView:
        """Makes metrics from numbers in the log of a finished job. Existing metrics do not change.

        Args:
            job_id: The job's id.
            pattern: A regular expression (RE2 syntax) with a group `value`.

        Raises:
            Conflict: The job has not ended.
            InvalidRequest: The expression is not valid.

        Example:
            >>> client.jobs.make_log_curves(job.id, "epoch (?P<value>[0-9]+)").keys
            ['epoch']
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
        """Compares metrics of several jobs, as columns.

        Args:
            job_ids: 1 to 50 ids of jobs.
            keys: At most 200 metrics; none: only list the metrics of each job.
            smooth: Weight of earlier points in the moving average, from 0 to below 1; 0: no average.
            max_points: Maximum points of each curve; None: 1500. A longer one is divided into buckets with their mean,
                minimum and maximum.
            from_step: The first step.
            to_step: The last step.
            attempt: Only points of this attempt.
            hidden: Also return points that a later attempt logged again.

        Example:
            >>> client.jobs.curves([job.id], keys=["train/loss"]).series[0].columns.mean
            [2.5, 1.25]
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
        """Yields lines of output, oldest first.

        Args:
            job_id: The job's id.
            tail: Only this many last lines.
            rank: Only lines of this rank.
            after: Only lines with a higher number.
            before: Only the newest lines with a lower number, at most 1,000.
            attempt: Only lines of this attempt.
            stream: `stdout` or `stderr`.
            limit: Maximum number of lines; None: all.

        Example:
            >>> [line.text for line in client.jobs.logs(job.id, stream="stdout")]
            ['epoch 1 of 1']
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
        """Yields the lines that contain a text, oldest first, with the positions of the matches.

        Args:
            job_id: The job's id.
            pattern: The text, or a regular expression (RE2 syntax).
            regex: Whether `pattern` is a regular expression.
            case: Match case.
            rank: Only lines of this rank.
            attempt: Only lines of this attempt.
            stream: `stdout` or `stderr`.
            after: Only lines with a higher number.
            before: Only lines with a lower number.
            limit: Maximum number of lines; None: all.
            searched: Called before each further request, with the number of the last searched line.

        Raises:
            InvalidRequest: The expression is not valid.

        Example:
            >>> [match.line for match in client.jobs.search_logs(job.id, "epoch [0-9]", regex=True)]
            [1]
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
        """Returns the Python stacks of every rank of a running job. The job continues.

        Args:
            job_id: The job's id.
            timeout: Seconds to wait for the worker.

        Raises:
            TimeoutError: The worker has not answered in time.
            Conflict: The job does not run.
            Forbidden: The job is another user's.
        """
        deadline = time.monotonic() + timeout
        found = await self._connection.answer(calls.request_stacks(job_id))
        while found.taken_at is None:
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"the worker of job {job_id} did not answer within {timeout:g} s: it prepares the job, or is away"
                )
            await self._connection.sleep(_STACKS_POLL_S)
            found = await self._connection.answer(calls.stacks(job_id))
        return found

    def stream(
        self, job_id: str, *, after: int = 0, only: Sequence[StoredKind] = (), live: bool = False
    ) -> AsyncGenerator[StreamItem]:
        """Yields everything that a job stores, in order, until it has ended. A lost connection loses and repeats
        nothing.

        Args:
            job_id: The job's id.
            after: Only items after this position.
            only: Kinds of items: `state`, `message`, `checkpoint`, `media`, `progress`, `metric`, `log`; none: all.
            live: Also yield unfinished lines, such as progress bars. They are not stored.

        Example:
            >>> [item.kind for item in client.jobs.stream(job.id, only=["log"])]
            ['log', 'end']
        """
        return self._connection.events(calls.stream_path(job_id), StreamReader(after=after, only=only, live=live))

    async def follow(
        self, job_id: str, *, logs: bool = True, metrics: bool = True, live: bool = False
    ) -> AsyncGenerator[Update]:
        """Yields the events, metric points and lines of a job, each once, until it has ended.

        Args:
            job_id: The job's id.
            logs: Include lines of output.
            metrics: Include metric points.
            live: Include unfinished lines.

        Yields:
            An unfinished job first, then its items, and last the job in its final state.

        Example:
            >>> [*client.jobs.follow(job.id)][-1].state.value
            'succeeded'
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
        """Yields lines of output as they are stored, until the job has ended.

        Args:
            job_id: The job's id.
            after: Only lines with a higher number.
            rank: Only lines of this rank.

        Example:
            >>> [line.text for line in client.jobs.follow_logs(job.id)]
            ['epoch 1 of 1']
        """
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
