"""Reads jobs and lines of output as the client does, without its models and its HTTP library, which take long to load.

Answers are checked field by field, as far as they are printed. Errors and messages are the client's.
"""

from __future__ import annotations

from contextlib import suppress
import os
import sys
import time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit
import warnings

from torchyard.cli.answers import Checkpoints, Counts, Job, Jobs, Lines, Me, Whole
from torchyard.client.backoff import Backoff
from torchyard.client.discovery import discover
from torchyard.client.problems import no_such_view, problem_of
from torchyard.client.shortids import MOST_LISTED, digits_of, is_named, only_id
from torchyard.client.versions import difference
from torchyard.contract.errors import NotFound, ServerUnreachable
from torchyard.contract.states import shown_state
from torchyard.contract.wire.version import HEADER

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from typing import Self

    from torchyard.cli.direct import Transport
    from torchyard.client.matching import Listed
    from torchyard.client.problems import Answer
    from torchyard.contract.errors import TorchyardError
    from torchyard.contract.files.views import CheckpointView
    from torchyard.contract.jobs.views import JobSummary, JobView
    from torchyard.contract.telemetry.views import LogLine
    from torchyard.contract.wire.codec import Record

R = TypeVar("R", bound="Record")
_FIRST_PATIENCE_S = 0.5
"""For this long a request is repeated to a server that never answered, as the client does."""
_LONGEST_PAGE, _LARGE_PAGE = 100, 1000
_MOST_TEXT = 200
"""Characters of a filter's value, which the server takes at most."""
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


class Reader:
    """Reads from the server that the environment, the login or the working directory names. Raises as `Client` does.

    What it returns has those attributes of a view that the command line prints.
    """

    def __init__(self, *, patience: float = 30.0) -> None:
        self._server = discover()
        self._transport = _transport_to(self._server.url)(self._server)
        self._patience = patience
        self._reached = self._compared = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()

    def own_name(self) -> str:
        return self._read(Me, "/v1/me").name

    def jobs(self, matching: Listed, *, limit: int | None) -> list[JobSummary]:
        """Returns the newest jobs that match. Raises InvalidRequest."""
        size = None if limit is None else max(1, min(limit, _LONGEST_PAGE))
        found: Any = [*self._pages(Jobs, "/v1/jobs", {**_sent(matching), "limit": size})][:limit]
        return found

    def jobs_as_json(self, matching: Listed, *, limit: int | None) -> list[dict[str, Any]]:
        """Returns the newest jobs that match, as the server writes them. Raises InvalidRequest."""
        size = None if limit is None else max(1, min(limit, _LONGEST_PAGE))
        return [*self._pages(Whole, "/v1/jobs", {**_sent(matching), "limit": size})][:limit]

    def count(self, matching: Listed) -> tuple[int, bool]:
        """Returns how many jobs match, and whether these are all: a long list is counted up to 1,000."""
        states = matching.get("state") or ()
        query = _sent({**matching, "state": ()})
        found = self._read(Counts, "/v1/jobs", {**query, "counts": "true", "limit": 1})
        counted = sum(count for state, count in found.counts.items() if not states or state in states)
        return counted, found.counts_complete

    def job(self, ref: str) -> JobView:
        """Returns the job with the id `ref`, else the newest of that name, else the only one with that short id.

        Raises NotFound, and Conflict if several have it.
        """
        found: Any = self._parsed(Job, self._job(ref))
        return found

    def job_as_json(self, ref: str) -> str:
        """Returns that job as the server writes it."""
        answer = self._job(ref)
        self._parsed(Job, answer)
        return answer.body.decode()

    def checkpoints(self, job_id: str) -> list[CheckpointView]:
        found: Any = [*self._pages(Checkpoints, f"{_path_of(job_id)}/checkpoints", {})]
        return found

    def lines(self, job_id: str, *, tail: int | None, rank: int | None) -> Generator[LogLine]:
        """Yields the stored lines of output, oldest first, or the last `tail` of them."""
        yield from self._lines(Lines, job_id, tail=tail, rank=rank)

    def lines_as_json(self, job_id: str, *, tail: int | None, rank: int | None) -> Generator[dict[str, Any]]:
        """Yields those lines as the server writes them."""
        yield from self._lines(Whole, job_id, tail=tail, rank=rank)

    def _lines(self, kind: Any, job_id: str, *, tail: int | None, rank: int | None) -> Generator[Any]:
        place = {"tail": tail} if tail is not None else {"after": "0", "limit": _LARGE_PAGE}
        return self._pages(kind, f"{_path_of(job_id)}/logs", {**place, "rank": rank})

    def _job(self, ref: str) -> Answer:
        if ref.startswith("job_") and ref.isprintable():  # no address has a lone surrogate
            with suppress(NotFound):  # a job may have such a name
                return self._answer(_path_of(ref))
        for archived in (None, True):  # an archived job only where no other is meant
            named = self.jobs({"name": ref, "archived": archived}, limit=1)
            job_id = named[0].id if named else only_id(ref, self._named(ref, archived=archived))
            if job_id is not None:
                return self._answer(_path_of(job_id))
        raise NotFound(f"there is no job with the id or name {ref!r}")

    def _named(self, ref: str, *, archived: bool | None) -> Mapping[str, str]:
        """Returns the newest jobs that have the short id `ref`: no more than it takes to list them."""
        found: dict[str, str] = {}
        if (digits := digits_of(ref)) is None:
            return found
        for job in self._pages(Jobs, "/v1/jobs", _sent({"q": digits, "archived": archived})):
            if is_named(job.id, ref):
                found[job.id] = f"{job.name}, {shown_state(job.state, job.status_reason.code)}"
            if len(found) > MOST_LISTED:
                break
        return found

    def _pages(self, kind: Any, path: str, params: Mapping[str, Any]) -> Generator[Any]:
        limit = params.get("limit")
        while True:
            page = self._read(kind, path, params)
            yield from page.data
            if not page.has_more or page.next is None:
                return
            params = {**params, "after": page.next, "limit": limit}

    def _read(self, kind: type[R], path: str, params: Mapping[str, Any] | None = None) -> R:
        given = {key: value for key, value in (params or {}).items() if value is not None}
        return self._parsed(kind, self._answer(f"{path}?{urlencode(given, doseq=True)}" if given else path))

    def _parsed(self, kind: type[R], answer: Answer) -> R:
        try:
            return kind.from_json(answer.body)
        except ValueError as error:
            raise no_such_view(answer.url, answer.status, kind.__name__, str(error)) from None

    def _answer(self, path: str) -> Answer:
        """Asks, again where that may help, and returns the answer. Waits as a `Retry-After` asks."""
        unanswered, refused = Backoff(self._patience if self._reached else _FIRST_PATIENCE_S), Backoff(self._patience)
        while True:
            try:
                answer = self._transport.get(path)
            except ServerUnreachable as error:
                pause = unanswered.next_pause(error)
            else:
                self._hear(answer)
                if 200 <= answer.status < 300:
                    return answer
                pause = _pause_after(problem_of(answer), refused)
            time.sleep(pause)

    def _hear(self, answer: Answer) -> None:
        """Notes that the server answers. Warns once if it is of another version than this client."""
        self._reached = True
        theirs = answer.headers.get(HEADER.lower())
        if self._compared or theirs is None:  # a proxy may have answered instead
            return
        self._compared = True
        if (text := difference(theirs, answer.address)) is not None:
            warnings.warn(text, stacklevel=2)


def _pause_after(error: TorchyardError, refused: Backoff) -> float:
    """Returns the seconds after which a refused request is sent again. Raises `error` if that helps nothing."""
    if error.retry_after is None:
        raise error
    return refused.next_pause(error)


def _transport_to(url: str) -> type[Transport]:
    """Returns what sends requests there: the client's HTTP library where a proxy or certificates matter."""
    address = urlsplit(url)
    is_local = address.hostname in {"127.0.0.1", "localhost", "::1"}
    named = any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES)
    has_proxy = named or sys.platform != "linux"  # elsewhere the system's settings name them, too
    if address.scheme == "https" or (has_proxy and not is_local):
        from torchyard.cli.proxied import Proxied

        return Proxied
    from torchyard.cli.direct import Direct

    return Direct


def _path_of(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}" if job_id.strip(".") else f"/v1/jobs/{job_id.replace('.', '%2E')}"


def _sent(matching: Listed) -> dict[str, Any]:
    """Returns the filter as the server takes it. Raises InvalidRequest, naming each argument."""
    given: dict[str, Any] = {key: value for key, value in matching.items() if value}
    if "labels" in given or not all(_is_plain(value) for value in given.values() if isinstance(value, str)):
        from torchyard.client.matching import query_of  # which checks all of them

        return query_of(matching).model_dump(mode="json", exclude_unset=True)
    if "created_after" in given:
        given["created_after"] = given["created_after"].astimezone().isoformat()
    return {key: "true" if value is True else value for key, value in given.items()}


def _is_plain(text: str) -> bool:
    return len(text) <= _MOST_TEXT and text.isprintable()
