"""The same client for `async` code: it makes the same calls and reads the same answers."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
import time
from typing import Self

from torchyard.client import calls
from torchyard.client.answers import file_name, parse
from torchyard.client.async_connection import AsyncConnection
from torchyard.client.calls import Spec
from torchyard.client.client import LONGEST_WAIT, Update
from torchyard.client.discovery import Server, discover
from torchyard.client.download import OnProgress, PartFile, wanted_file
from torchyard.client.stream import End, Kind, Reading, StreamItem, kinds
from torchyard.contract.errors import NotFound
from torchyard.contract.spec import JobSpec
from torchyard.contract.views import (
    CheckpointView,
    EventView,
    JobView,
    LogLine,
    MetricsView,
    QueueEntry,
    ReadyView,
    TrainerView,
    WorkerView,
)


class AsyncClient:
    """`Client` for a running asyncio loop: each method takes, gives and raises what the one of that name there does.

    Use it as `async with AsyncClient() as client`, or close it.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        data_dir: str | Path = ".torchyard",
        patience: float = 30.0,
    ) -> None:
        self.server: Server = discover(url, token, data_dir=Path(data_dir))
        self._connection = AsyncConnection(self.server, patience=patience)

    async def close(self) -> None:
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def submit(self, spec: Spec, *, idempotency_key: str | None = None) -> JobView:
        return await self._connection.answer(calls.submit(spec, key=idempotency_key))

    async def validate(self, spec: Spec) -> JobSpec:
        return (await self._connection.answer(calls.validate(spec))).spec

    async def get(self, job_id: str) -> JobView:
        return await self._connection.answer(calls.get(job_id))

    async def find(self, ref: str) -> JobView:
        if ref.startswith("job_"):
            try:
                return await self.get(ref)
            except NotFound:
                pass  # a job may have such a name
        async for job in self.list(name=ref, limit=1):
            return job
        raise NotFound(f"there is no job with the id or name {ref!r}")

    def list(
        self,
        *,
        state: Sequence[str] = (),
        name: str | None = None,
        owner: str | None = None,
        trainer: str | None = None,
        labels: Mapping[str, str] | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[JobView]:
        call = calls.jobs(
            state=state,
            name=name,
            owner=owner,
            trainer=trainer,
            labels=labels,
            created_after=created_after,
            created_before=created_before,
            limit=limit,
        )
        return self._connection.pages(call, limit=limit)

    async def update(
        self,
        job_id: str,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
    ) -> JobView:
        return await self._connection.answer(calls.update(job_id, name=name, labels=labels, priority=priority))

    async def cancel(self, job_id: str) -> JobView:
        return await self._connection.answer(calls.cancel(job_id))

    async def pause(self, job_id: str) -> JobView:
        return await self._connection.answer(calls.pause(job_id))

    async def resume(self, job_id: str) -> JobView:
        return await self._connection.answer(calls.resume(job_id))

    async def retry(self, job_id: str, *, idempotency_key: str | None = None) -> JobView:
        return await self._connection.answer(calls.retry(job_id, key=idempotency_key))

    async def delete(self, job_id: str) -> None:
        await self._connection.send(calls.delete(job_id))

    def queue(self) -> AsyncIterator[QueueEntry]:
        return self._connection.pages(calls.queue())

    def events(self, job_id: str, *, after: int = 0) -> AsyncIterator[EventView]:
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
        call = calls.metrics(
            job_id, keys=keys, from_step=from_step, to_step=to_step, max_points=max_points, attempt=attempt
        )
        return await self._connection.answer(call)

    def logs(
        self, job_id: str, *, tail: int | None = None, rank: int | None = None, after: int | None = None
    ) -> AsyncIterator[LogLine]:
        if tail is not None:
            return self._connection.pages(calls.log_tail(job_id, tail=tail, rank=rank))
        return self._connection.pages(calls.log(job_id, after=after or 0, rank=rank))

    def checkpoints(self, job_id: str) -> AsyncIterator[CheckpointView]:
        return self._connection.pages(calls.checkpoints(job_id))

    async def checkpoint(self, job_id: str, ref: str = "best") -> CheckpointView:
        return await self._connection.answer(calls.checkpoint(job_id, ref))

    async def download(
        self,
        job_id: str,
        ref: str = "best",
        *,
        file: str | None = None,
        to: str | Path = ".",
        on_progress: OnProgress | None = None,
    ) -> Path:
        listed = await self.checkpoint(job_id, ref)
        wanted = wanted_file(listed, file)
        path = calls.file_path(job_id, listed.id, file)
        target = Path(to)
        if target.is_dir():  # noqa: ASYNC240 - as short as every other touch of the file
            target /= file_name(await self._connection.send(calls.head(path))) or f"{listed.id}.pt"
        with PartFile(target, wanted, on_progress) as part:
            await self._connection.fill(part, path)
            part.finish()
        return target

    async def trainers(self) -> Sequence[TrainerView]:
        return [item async for item in self._connection.pages(calls.trainers())]

    async def workers(self) -> Sequence[WorkerView]:
        return [item async for item in self._connection.pages(calls.workers())]

    async def drain(self, worker_id: str) -> WorkerView:
        return await self._connection.answer(calls.drain(worker_id))

    async def undrain(self, worker_id: str) -> WorkerView:
        return await self._connection.answer(calls.undrain(worker_id))

    async def ready(self) -> ReadyView:
        call = calls.ready()
        return parse(await self._connection.attempt(call), call.kind)

    async def wait(self, job_id: str, *, timeout: float | None = None) -> JobView:  # noqa: ASYNC109 - as in Client
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        job = await self.get(job_id)
        while not job.state.terminal:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"job {job_id} is still {job.state} after {timeout:g} s")
            call = calls.get(job_id, wait=min(left, LONGEST_WAIT), after_version=job.version)
            job = await self._connection.answer(call)
        return job

    def stream(self, job_id: str, *, after: int = 0, only: Sequence[Kind] = ()) -> AsyncGenerator[StreamItem]:
        return self._connection.events(calls.stream_path(job_id), Reading(after), tuple(only))

    async def follow(self, job_id: str, *, logs: bool = True, metrics: bool = True) -> AsyncGenerator[Update]:
        job = await self.get(job_id)
        if not job.state.terminal:
            yield job
        async with aclosing(self.stream(job_id, only=kinds(logs=logs, metrics=metrics))) as items:
            async for item in items:
                if not isinstance(item.view, End):
                    yield item.view
        yield await self.get(job_id)
