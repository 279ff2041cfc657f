"""Operations on sweeps."""

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
    """Operations on sweeps. A `sweep_id` is the full id of a sweep.

    Each raises NotFound for a sweep that you may not read, and Forbidden if it changes another user's sweep.
    """

    async def create(self, spec: Spec, *, idempotency_key: str | None = None) -> SweepView:
        """Submits a sweep, once even if the connection breaks. The service makes its jobs.

        Args:
            spec: A sweep spec: `name`, `method`, `parameters`, `job`, …. `init_from` of the job may have a name.
            idempotency_key: A name for this request. For 24 hours, the same spec with the same key returns the same
                sweep.

        Raises:
            InvalidSpec: The spec is not valid. `errors` names each field.
            QuotaExceeded: Your quota does not allow the sweep.

        Example:
            >>> sweep = client.sweeps.create(
            ...     {"name": "lrs", "method": "grid", "parameters": {"config.optimizer.lr": [0.1, 0.01]}, "job": spec}
            ... )
            >>> sweep.name, sweep.trials.total
            ('lrs', 2)
        """
        content, headers = _encoded(await self._exact(spec)), {**JSON, **idempotency(idempotency_key)}
        return await self._connection.answer(Call(SweepView, "POST", _PATH, content=content, headers=headers))

    async def validate(self, spec: Spec) -> SweepResolved:
        """Checks a sweep, and returns it with all defaults and its number of trials. Stores nothing.

        Args:
            spec: A sweep spec.

        Raises:
            InvalidSpec: The spec is not valid. `errors` names each field.

        Example:
            >>> seeds = {"name": "seeds", "parameters": {"config.training.seed": "1..5"}, "job": spec}
            >>> client.sweeps.validate(seeds).points
            5
        """
        content = _encoded(await self._exact(spec))
        return await self._connection.answer(
            Call(SweepResolved, "POST", f"{_PATH}/validate", content=content, headers=JSON)
        )

    async def get(self, ref: str) -> SweepView:
        """Returns a sweep.

        Args:
            ref: Its id, its name (the newest sweep with it), or the last four or more digits of its id.

        Raises:
            NotFound: There is no such sweep.
            Conflict: Several sweeps have these digits.
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
        """Yields the sweeps that match every argument, newest first.

        Args:
            state: Any of these states; none: all.
            name: Only this name.
            owner: Only this user.
            limit: Maximum number of sweeps; None: all.

        Example:
            >>> [sweep.name for sweep in client.sweeps.list(state=["failed"])]
            []
        """
        params = {"limit": LONGEST_PAGE, "state": [*state] or None, "name": name, "owner": owner}
        return self._connection.pages(Call(Page[SweepSummary], "GET", _PATH, params), limit=limit)

    def trials(
        self, sweep_id: str, *, sort: Literal["value", "number"] = "value", limit: int | None = None
    ) -> AsyncGenerator[TrialView]:
        """Yields the trials of a sweep that have a job.

        Args:
            sweep_id: The sweep's id.
            sort: `value`: best first; `number`: in order.
            limit: Maximum number of trials; None: all.
        """
        params = {"sort": sort, "limit": bounded(limit)}
        return self._connection.pages(Call(Page[TrialView], "GET", f"{_path(sweep_id)}/trials", params), limit=limit)

    async def pause(self, sweep_id: str) -> SweepView:
        """Pauses a sweep: it makes no more trials, and pauses its waiting and running jobs.

        Raises:
            Conflict: The sweep has ended.
        """
        return await self._connection.answer(Call(SweepView, "POST", f"{_path(sweep_id)}/pause"))

    async def resume(self, sweep_id: str) -> SweepView:
        """Resumes a paused sweep and its jobs.

        Raises:
            Conflict: The sweep has ended.
        """
        return await self._connection.answer(Call(SweepView, "POST", f"{_path(sweep_id)}/resume"))

    async def cancel(self, sweep_id: str) -> SweepView:
        """Cancels a sweep and its unfinished jobs.

        Raises:
            Conflict: The sweep has ended.
        """
        return await self._connection.answer(Call(SweepView, "POST", f"{_path(sweep_id)}/cancel"))

    async def extend(
        self,
        sweep_id: str,
        *,
        trials: int | None = None,
        points: Sequence[Mapping[str, Any]] | None = None,
        max_parallel: int | None = None,
    ) -> SweepView:
        """Adds trials or points, or changes how many trials run at the same time. A finished sweep continues.

        Args:
            sweep_id: The sweep's id.
            trials: Number of trials to add (`random`, `tpe`, `asha`, `array`).
            points: Points to add (`list`).
            max_parallel: Maximum number of trials that wait or run.

        Raises:
            InvalidRequest: The method of the sweep does not take this.
        """
        content = json.dumps(given({"trials": trials, "points": points, "max_parallel": max_parallel}))
        path = f"{_path(sweep_id)}/extend"
        return await self._connection.answer(
            Call(SweepView, "POST", path, content=content, headers=JSON, repeatable=False)
        )

    async def promote(self, sweep_id: str, number: int) -> TrialView:
        """Continues a trial that has ended or waits at a rung. It resumes from its newest checkpoint.

        Args:
            sweep_id: The sweep's id.
            number: The number of the trial, from 0.

        Raises:
            Conflict: The trial cannot continue.
        """
        path = f"{_path(sweep_id)}/trials/{number}/promote"
        return await self._connection.answer(Call(TrialView, "POST", path, repeatable=False))

    async def delete(self, sweep_id: str, *, jobs: bool = False) -> None:
        """Deletes a finished sweep.

        Args:
            sweep_id: The sweep's id.
            jobs: Also delete its jobs and everything that they stored; False: they stay.

        Raises:
            Conflict: The sweep has not ended.
        """
        params = {"jobs": "true" if jobs else None}
        await self._connection.send(Call(View, "DELETE", _path(sweep_id), params, repeatable=False))

    async def wait(self, sweep_id: str, *, timeout: float | None = None) -> SweepView:  # noqa: ASYNC109 - as in Client
        """Waits until a sweep has ended.

        Args:
            sweep_id: The sweep's id.
            timeout: Seconds to wait; None: no limit.

        Raises:
            TimeoutError: The sweep has not ended in time.
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
