"""The objects that find out who makes a request, and count what each caller sends."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
import hashlib
from typing import Annotated, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request

from api.auth.identities import Identities
from api.auth.links import FileLinks
from api.limits.rates import Rates, SharedRates
from api.limits.streams import OpenStreams
from api.settings import Settings
from store.shared_counts import SharedCounts
from store.store import Store

P = ParamSpec("P")
T = TypeVar("T")

_QUESTIONS = 4
_NOTES = 2
THREADS = _QUESTIONS + _NOTES
"""Threads that may use a connection to the database."""
_BURST_S = 10
"""A caller's requests of this many seconds may come at once."""

_LOGINS_BEYOND_QUOTA = 5
"""Logins that a user over the quota has at once. After them, one a minute is accepted."""


@dataclass(frozen=True)
class Access:
    """What finds out who makes a request, and the limits of callers."""

    token: str
    """The bootstrap administrator's token."""
    settings: Settings
    store: Store
    counts: SharedCounts
    requests: SharedRates
    """Requests of each user."""
    open_streams: OpenStreams
    """Open streams of each user."""
    identities: Identities
    wrong_tokens: Rates
    """Requests of each address that had a wrong token, as this process alone has seen them."""
    logins_beyond_quota: Rates
    """Sessions and login codes of each user who has written more than the quota: the audit keeps an entry of each."""
    links: FileLinks
    question_threads: CapacityLimiter
    """Threads for `at_once` alone."""
    note_threads: CapacityLimiter
    """Threads for `note` alone."""

    @classmethod
    def of(cls, settings: Settings, store: Store, *, token: str) -> "Access":
        requests, wrong_tokens = settings.max_requests_per_second, settings.max_wrong_tokens_per_minute
        counts = SharedCounts(settings.redis, service=store.known_service)
        return cls(
            token=token,
            settings=settings,
            store=store,
            counts=counts,
            requests=SharedRates(counts, per_second=requests, burst=max(1, requests * _BURST_S)),
            open_streams=OpenStreams(settings.max_streams, counts),
            identities=Identities(settings.redis, service=store.service),
            wrong_tokens=Rates(per_second=wrong_tokens / 60, burst=wrong_tokens),
            logins_beyond_quota=Rates(per_second=1 / 60, burst=_LOGINS_BEYOND_QUOTA),
            links=FileLinks(token),
            question_threads=CapacityLimiter(_QUESTIONS),
            note_threads=CapacityLimiter(_NOTES),
        )

    async def at_once(self, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Asks in a thread who may do what, however busy all other threads are. Raises what `ask` does.

        `ask` must not write: a write waits for other writes.
        """
        return await to_thread.run_sync(partial(ask, *args, **kwargs), limiter=self.question_threads)

    async def note(self, write: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Stores in a thread that a credential was used or refused. Other requests do not wait for it."""
        return await to_thread.run_sync(partial(write, *args, **kwargs), limiter=self.note_threads)

    def close(self) -> None:
        """Ends what runs in the background. Call it in the event loop."""
        self.identities.close()
        self.open_streams.close()
        self.counts.close()

    def cookie_name(self, *, secure: bool) -> str:
        """Returns the name of the session's cookie, which differs between services of one host: cookies ignore ports.

        Browsers accept the name of a `secure` one over HTTPS alone, so that no plain page of the host can set it.
        """
        name = f"torchyard_{hashlib.sha256(f'cookie {self.token}'.encode()).hexdigest()[:12]}"
        return f"__Host-{name}" if secure else name


async def _access(request: Request) -> Access:
    return request.app.state.services.access


AccessDep = Annotated[Access, Depends(_access)]
"""A dependency's parameter: the process's access."""
