"""The operations on sweeps."""

from collections.abc import AsyncGenerator, Mapping, Sequence
import json
import time
from typing import Any, Literal, cast

from torchyard.client.calls.call import (
    JSON,
    LONGEST_PAGE,
    Call,
    Spec,
    bounded,
    encoded,
    given,
    idempotency,
    segment,
)
from torchyard.client.core.base import Core
from torchyard.client.references import sweep_id_of, with_ids
from torchyard.contract.errors import NotFound
from torchyard.contract.sweeps.spec import MOST_SWEEP_BYTES, SweepState
from torchyard.contract.sweeps.views import SweepResolved, SweepSummary, SweepView, TrialView
from torchyard.contract.wire.view import Page, View

_PATH = "/v1/sweeps"
_POLL_S = 2.0
"""Seconds between two looks at a sweep that is awaited."""


class SweepsCore(Core):
    """Operations over one connection. Each raises NotFound, and Forbidden if it changes a sweep of another user."""

    async def create(self, spec: Spec, *, idempotency_key: str | None = None) -> SweepView:
        """Submits a sweep, once even if the connection breaks, and returns it. The service makes its jobs.

        The `init_from` of its job may have a name, as in `submit`. Raises InvalidSpec and QuotaExceeded.
        """
        content, headers = _encoded(await self._exact(spec)), {**JSON, **idempotency(idempotency_key)}
        return await self._connection.answer(Call(SweepView, "POST", _PATH, content=content, headers=headers))

    async def validate(self, spec: Spec) -> SweepResolved:
        """Returns the spec with every default filled in, and the number of its trials; nothing is stored.

        Raises InvalidSpec, naming each field.
        """
        content = _encoded(await self._exact(spec))
        return await self._connection.answer(
            Call(SweepResolved, "POST", f"{_PATH}/validate", content=content, headers=JSON)
        )

    async def get(self, ref: str) -> SweepView:
        """Returns the sweep with the id `ref`, else the newest of that name, else the only one with that short id.

        Raises NotFound, and Conflict if several have it.
        """
        if ref.startswith("swp_"):
            try:
                return await self._connection.answer(_get(ref))
            except NotFound:
                pass  # a sweep may have such a name
        return await self._connection.answer(_get(await sweep_id_of(self._connection, ref)))

    def list(
        self,
        *,
        state: Sequence[SweepState] = (),
        name: str | None = None,
        owner: str | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[SweepSummary]:
        """Yields the sweeps that one may read and that match every argument, newest first."""
        params = {"limit": LONGEST_PAGE, "state": [*state] or None, "name": name, "owner": owner}
        return self._connection.pages(Call(Page[SweepSummary], "GET", _PATH, params), limit=limit)

    def trials(
        self, sweep_id: str, *, sort: Literal["value", "number"] = "value", limit: int | None = None
    ) -> AsyncGenerator[TrialView]:
        """Yields the trials of a sweep, the best first, or in the order in which they are made."""
        params = {"sort": sort, "limit": bounded(limit)}
        return self._connection.pages(Call(Page[TrialView], "GET", f"{_path(sweep_id)}/trials", params), limit=limit)

    async def pause(self, sweep_id: str) -> SweepView:
        """Makes no more trials, and pauses those that wait or run. Raises Conflict if it has ended."""
        return await self._connection.answer(Call(SweepView, "POST", f"{_path(sweep_id)}/pause"))

    async def resume(self, sweep_id: str) -> SweepView:
        """Lets a paused sweep and its trials go on. Raises Conflict if it has ended."""
        return await self._connection.answer(Call(SweepView, "POST", f"{_path(sweep_id)}/resume"))

    async def cancel(self, sweep_id: str) -> SweepView:
        """Makes no more trials, and cancels those that have not ended. Raises Conflict if it has ended."""
        return await self._connection.answer(Call(SweepView, "POST", f"{_path(sweep_id)}/cancel"))

    async def extend(
        self,
        sweep_id: str,
        *,
        trials: int | None = None,
        points: Sequence[Mapping[str, Any]] | None = None,
        max_parallel: int | None = None,
    ) -> SweepView:
        """Adds so many trials, or these points to a list, or changes how many run at once; one that has finished begins
        again. Raises InvalidRequest.
        """
        content = json.dumps(given({"trials": trials, "points": points, "max_parallel": max_parallel}))
        path = f"{_path(sweep_id)}/extend"
        return await self._connection.answer(
            Call(SweepView, "POST", path, content=content, headers=JSON, repeatable=False)
        )

    async def promote(self, sweep_id: str, number: int) -> TrialView:
        """Lets a trial that was stopped early go on from its newest checkpoint. Raises Conflict if it was not."""
        path = f"{_path(sweep_id)}/trials/{number}/promote"
        return await self._connection.answer(Call(TrialView, "POST", path, repeatable=False))

    async def delete(self, sweep_id: str, *, jobs: bool = False) -> None:
        """Removes a sweep that has ended; its jobs stay, unless `jobs`: then they go with all that they stored.

        Raises Conflict if it has not ended.
        """
        params = {"jobs": "true" if jobs else None}
        await self._connection.send(Call(View, "DELETE", _path(sweep_id), params, repeatable=False))

    async def wait(self, sweep_id: str, *, timeout: float | None = None) -> SweepView:  # noqa: ASYNC109 - as in Client
        """Waits until the sweep has ended, however it ends, and returns it. `timeout` is in seconds.

        Raises TimeoutError.
        """
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        sweep = await self._connection.answer(_get(sweep_id))
        while not sweep.state.ended:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"sweep {sweep_id} is still {sweep.state} after {timeout:g} s")
            await self._connection.sleep(min(left, _POLL_S))
            sweep = await self._connection.answer(_get(sweep_id))
        return sweep

    async def _exact(self, spec: Spec) -> Spec:
        """Returns the spec with an id in the `init_from` of its job."""
        job = spec.get("job") if isinstance(spec, Mapping) else None
        if not isinstance(job, Mapping):
            return spec  # what is wrong with it, the server says
        (exact,) = await with_ids(self._connection, [cast("Mapping[str, Any]", job)])
        return {**cast("Mapping[str, Any]", spec), "job": exact}


def _get(sweep_id: str) -> Call[SweepView]:
    return Call(SweepView, "GET", _path(sweep_id))


def _path(sweep_id: str) -> str:
    return f"{_PATH}/{segment(sweep_id)}"


def _encoded(spec: Spec) -> str:
    return encoded(spec, what="sweep", most=MOST_SWEEP_BYTES)
