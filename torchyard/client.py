"""The Python client: submit jobs to a Torchyard server, watch them, fetch their checkpoints."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
import hashlib
import json
from pathlib import Path
import re
import time
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit
import weakref

import httpx2
from pydantic import BaseModel, ValidationError

from torchyard.discovery import Server, discover
from torchyard.errors import FieldError, InvalidSpec, NotFound, ServerError, ServerUnreachable, TorchyardError
from torchyard.views import (
    CheckpointView,
    EventView,
    JobView,
    LogLine,
    MetricsView,
    Page,
    PointView,
    Problem,
    ReadyView,
    TrainerView,
    WorkerView,
)

V = TypeVar("V", bound=BaseModel)
Params = Mapping[str, str | int | Sequence[str] | None]

_TIMEOUT = httpx2.Timeout(30, connect=5)
_PATIENCE = {False: 0.5, True: 10.0}
"""Seconds for which a call that may be repeated is: before and after the server was once reached."""
_POLL = 0.5
_LARGE_PAGE = 1000
_MOST_POINTS = 100_000
_FILE_NAME = re.compile(r'filename="([A-Za-z0-9][A-Za-z0-9._-]{0,199})"')


@dataclass(frozen=True)
class MetricPoint:
    """One value of one metric, as `Client.follow` yields it."""

    key: str
    point: PointView


Update = JobView | EventView | MetricPoint | LogLine
"""What `Client.follow` yields."""


class Client:
    """Talks to one Torchyard server. Every method raises TorchyardError: by the answer's `code` the class that
    `torchyard.errors` has for it, ServerUnreachable where nothing answers.

    Without arguments it finds the server through TORCHYARD_URL and TORCHYARD_TOKEN, else the user's login, else the
    `server.json` in `data_dir` that `torchyard up` keeps.
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, *, data_dir: str | Path = ".torchyard"
    ) -> None:
        self.server: Server = discover(url, token, data_dir=Path(data_dir))
        local = urlsplit(self.server.url).hostname in {"127.0.0.1", "localhost", "::1"}
        # A proxy cannot reach this machine's loopback, and a plain connection needs no certificates.
        self._http = httpx2.Client(
            base_url=self.server.url,
            headers={"Authorization": f"Bearer {self.server.token}", "User-Agent": "torchyard"},
            timeout=_TIMEOUT,
            trust_env=not local,
            verify=self.server.url.startswith("https:"),
        )
        self._reached = False
        self._close = weakref.finalize(self, self._http.close)

    def close(self) -> None:
        """Closes the connections, as the end of the object does too."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, spec: Mapping[str, Any] | BaseModel, *, idempotency_key: str | None = None) -> JobView:
        """Submits a job. With a key, a server that knows it gives the job of the first call with that key."""
        body = spec.model_dump_json() if isinstance(spec, BaseModel) else _encode(spec)
        headers = {"Content-Type": "application/json"}
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        return self._parse(self._call("POST", "/v1/jobs", content=body, headers=headers), JobView)

    def get(self, job_id: str) -> JobView:
        return self._get(_job(job_id), JobView)

    def find(self, ref: str) -> JobView:
        """The job with the id `ref`, else the newest job of that name. Raises NotFound."""
        if ref.startswith("job_"):
            try:
                return self.get(ref)
            except NotFound:
                pass  # a job may have such a name
        newest = next((job for job in self.list(name=ref) if job.name == ref), None)
        if newest is None:
            raise NotFound(f"there is no job with the id or name {ref!r}")
        return newest

    def list(
        self,
        *,
        state: Sequence[str] = (),
        name: str | None = None,
        trainer: str | None = None,
        limit: int | None = None,
    ) -> Iterator[JobView]:
        """Jobs, newest first; pages are fetched as they are needed."""
        params: dict[str, Any] = {"state": [str(item) for item in state], "name": name, "trainer": trainer}
        return self._pages("/v1/jobs", JobView, params=params, limit=limit)

    def cancel(self, job_id: str) -> JobView:
        """Asks the job to stop. Raises Conflict if it has ended."""
        return self._parse(self._call("POST", f"{_job(job_id)}/cancel"), JobView)

    def events(self, job_id: str, *, after: int = 0) -> Iterator[EventView]:
        """The job's events with a `seq` above `after`, in order."""
        return self._pages(f"{_job(job_id)}/events", EventView, params={"after": str(after), "limit": _LARGE_PAGE})

    def metrics(
        self,
        job_id: str,
        *,
        keys: Sequence[str] = (),
        from_step: int | None = None,
        to_step: int | None = None,
        max_points: int | None = None,
        attempt: int | None = None,
    ) -> MetricsView:
        """The job's series, each downsampled to `max_points` where that is given or the server has a limit."""
        bounds = {"from_step": from_step, "to_step": to_step, "max_points": max_points, "attempt": attempt}
        return self._get(f"{_job(job_id)}/metrics", MetricsView, params={"key": keys, **bounds})

    def logs(
        self, job_id: str, *, tail: int | None = None, rank: int | None = None, after: int | None = None
    ) -> Iterator[LogLine]:
        """Lines of output, oldest first: the last `tail` ones, or those numbered above `after`."""
        path, params = f"{_job(job_id)}/logs", {"rank": rank}
        if tail is not None:
            return iter(self._get(path, Page[LogLine], params={**params, "tail": tail}).data)
        return self._pages(path, LogLine, params={**params, "after": str(after or 0), "limit": _LARGE_PAGE})

    def checkpoints(self, job_id: str) -> Iterator[CheckpointView]:
        """The job's checkpoints, newest first."""
        return self._pages(f"{_job(job_id)}/checkpoints", CheckpointView)

    def checkpoint(self, job_id: str, ref: str = "best") -> CheckpointView:
        """`ref` is an id, `best`, `latest`, `epoch-N` or `step-N`. Raises NotFound."""
        return self._get(_checkpoint(job_id, ref), CheckpointView)

    def download(
        self,
        job_id: str,
        ref: str = "best",
        *,
        to: str | Path = ".",
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Path:
        """Fetches a checkpoint's `state.pt` and gives its path: `to`, or in that folder the server's name for it.

        The file appears whole, with the listed sha256, or not at all. `on_progress` is called with the bytes so far
        and their total. Raises NotFound, OSError, and ServerError where the bytes are not those that the server lists.
        """
        listed = self.checkpoint(job_id, ref)
        with self._stream(f"{_checkpoint(job_id, listed.id)}/download") as response:
            target = Path(to)
            if target.is_dir():
                target /= _file_name(response) or f"{listed.id}.pt"
            part = target.with_name(f"{target.name}.part")
            try:
                _receive(response, part, listed, on_progress)
                part.replace(target)
            finally:
                part.unlink(missing_ok=True)
        return target

    def trainers(self) -> Sequence[TrainerView]:
        return [*self._pages("/v1/trainers", TrainerView)]

    def workers(self) -> Sequence[WorkerView]:
        return [*self._pages("/v1/workers", WorkerView)]

    def ready(self) -> ReadyView:
        """What the service needs and whether it answers. Raises ServerUnreachable."""
        return self._parse(self._send("GET", "/readyz"), ReadyView)

    def wait(self, job_id: str, *, timeout: float | None = None) -> JobView:
        """The job once it has ended. `timeout` is in seconds; raises TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not (job := self.get(job_id)).state.terminal:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"job {job_id} is still {job.state} after {timeout:g} s")
            time.sleep(_POLL)
        return job

    def follow(self, job_id: str, *, logs: bool = True, metrics: bool = True) -> Generator[Update]:
        """What happens to the job, from its beginning to its end: its events, metric points and log lines, each once,
        and the job itself whenever it has changed. The last thing is the job in its final state.
        """
        cursors = _Cursors()
        shown: JobView | None = None
        while True:
            # Read before the rest: when it is terminal, everything that it has is stored.
            job = self.get(job_id)
            if job != shown and not job.state.terminal:
                yield (shown := job)
            for event in self.events(job_id, after=cursors.event):
                cursors.event = event.seq
                yield event
            if metrics:
                yield from self._new_points(job, cursors)
            for line in self.logs(job_id, after=cursors.line) if logs else ():
                cursors.line = line.line
                yield line
            if job.state.terminal:
                yield job
                return
            time.sleep(_POLL)

    def follow_logs(self, job_id: str, *, after: int = 0, rank: int | None = None) -> Generator[LogLine]:
        """Lines of output numbered above `after`, as they come, until the job has ended."""
        while True:
            ended = self.get(job_id).state.terminal
            for line in self.logs(job_id, rank=rank, after=after):
                after = line.line
                yield line
            if ended:
                return
            time.sleep(_POLL)

    def _new_points(self, job: JobView, cursors: "_Cursors") -> Iterator[MetricPoint]:
        for attempt in range(max(cursors.attempt, 1), job.attempt + 1):
            if attempt != cursors.attempt:
                cursors.attempt, cursors.step, cursors.seen = attempt, 0, set()
            view = self.metrics(job.id, from_step=cursors.step, attempt=attempt, max_points=_MOST_POINTS)
            points = [MetricPoint(series.key, point) for series in view.data for point in series.points]
            for item in sorted(points, key=lambda item: item.point.step):
                if (item.key, item.point.step) not in cursors.seen:
                    yield item
            # The last step is asked for again, as other keys may come to it later.
            cursors.step = max((item.point.step for item in points), default=cursors.step)
            cursors.seen = {(item.key, item.point.step) for item in points if item.point.step == cursors.step}

    def _get(self, path: str, kind: type[V], *, params: Params | None = None) -> V:
        return self._parse(self._call("GET", path, params=params), kind)

    def _pages(
        self, path: str, kind: type[V], *, params: Params | None = None, limit: int | None = None
    ) -> Iterator[V]:
        query = dict(params or {})
        if limit is not None:
            query["limit"] = max(1, min(limit, 100))
        left = limit
        while True:
            page = self._get(path, Page[kind], params=query)
            yield from page.data[:left]
            left = None if left is None else left - len(page.data)
            if not page.has_more or page.next is None or (left is not None and left <= 0):
                return
            query["after"] = page.next

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        content: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        deadline = time.monotonic() + _PATIENCE[self._reached]
        pause = 0.1
        while True:
            try:
                response = self._send(method, path, params=params, content=content, headers=headers)
                break
            except ServerUnreachable as error:
                unsent = isinstance(error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout)
                if not (unsent or method == "GET") or time.monotonic() + pause > deadline:
                    raise
                time.sleep(pause)
                pause *= 2
        if response.is_success:
            return response
        raise _problem(response)

    def _send(self, method: str, path: str, *, params: Params | None = None, **kwargs: Any) -> httpx2.Response:
        sent = {key: value for key, value in (params or {}).items() if value is not None}
        try:
            response = self._http.request(method, path, params=sent or None, **kwargs)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error
        self._reached = True
        return response

    @contextmanager
    def _stream(self, path: str) -> Generator[httpx2.Response]:
        try:
            with self._http.stream("GET", path, headers={"Accept-Encoding": "identity"}) as response:
                if not response.is_success:
                    response.read()
                    raise _problem(response)
                yield response
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: httpx2.TransportError) -> ServerUnreachable:
        what = "did not answer in time" if isinstance(error, httpx2.TimeoutException) else "cannot be reached"
        detail = str(error) or type(error).__name__
        return ServerUnreachable(f"{self.server.url} {what} ({detail}): {self.server.advice}")

    def _parse(self, response: httpx2.Response, kind: type[V]) -> V:
        try:
            return kind.model_validate_json(response.content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ServerError(
                f"{response.url} answered {response.status_code} with something else than a {kind.__name__}"
                f" ({where}: {first['msg']}): is it a Torchyard server of this version?"
            ) from None


@dataclass
class _Cursors:
    event: int = 0
    line: int = 0
    attempt: int = 0
    step: int = 0
    seen: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])


def _job(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"


def _checkpoint(job_id: str, ref: str) -> str:
    return f"{_job(job_id)}/checkpoints/{quote(ref, safe='')}"


def _encode(spec: Mapping[str, Any]) -> str:
    try:
        return json.dumps(spec, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSpec(f"the spec cannot be written as JSON: {error}") from None


def _problem(response: httpx2.Response) -> TorchyardError:
    """The error that the answer stands for, with everything it says in its message."""
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        return ServerError(
            f"{response.request.method} {response.url} answered {response.status_code}, which is no answer of Torchyard"
        )
    errors = tuple(FieldError(item.get("field", ""), item.get("message", "")) for item in problem.errors)
    lines = [f"{problem.detail or problem.title} (request {problem.request_id})"]
    lines += [f"  {error.field}: {error.message}" if error.field else f"  {error.message}" for error in errors]
    kinds = {kind.code: kind for kind in TorchyardError.__subclasses__()}
    return kinds.get(problem.code, ServerError)("\n".join(lines), errors=errors)


def _file_name(response: httpx2.Response) -> str | None:
    match = _FILE_NAME.search(response.headers.get("Content-Disposition", ""))
    return match[1] if match else None


def _receive(
    response: httpx2.Response, part: Path, listed: CheckpointView, on_progress: Callable[[int, int], None] | None
) -> None:
    digest, size = hashlib.sha256(), 0
    with part.open("wb") as file:
        for chunk in response.iter_bytes(1 << 20):
            size += file.write(chunk)
            digest.update(chunk)
            if on_progress is not None:
                on_progress(size, listed.size)
    if (size, digest.hexdigest()) != (listed.size, listed.sha256):
        raise ServerError(
            f"checkpoint {listed.id} arrived as {size} bytes with sha256 {digest.hexdigest()},"
            f" but is listed as {listed.size} bytes with sha256 {listed.sha256}"
        )
