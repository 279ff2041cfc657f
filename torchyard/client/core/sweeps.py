"""The operations on sweeps."""

from collections.abc import AsyncGenerator, Mapping, Sequence
import time
from typing import Any, Literal, cast

from torchyard.client.calls import sweeps as calls
from torchyard.client.calls.call import Spec
from torchyard.client.connection import Connection
from torchyard.client.references import sweep_id_of, with_ids
from torchyard.client.transport import Transport
from torchyard.contract.errors import NotFound
from torchyard.contract.sweeps.spec import SweepState
from torchyard.contract.sweeps.views import SweepResolved, SweepSummary, SweepView, TrialView

_POLL_S = 2.0
"""Seconds between two looks at a sweep that is awaited."""


class SweepsCore:
    """Operations over one connection. Each raises NotFound, and Forbidden if it changes a sweep of another user."""

    def __init__(self, connection: Connection, transport: Transport) -> None:
        self._connection = connection
        self._transport = transport

    async def create(self, spec: Spec, *, idempotency_key: str | None = None) -> SweepView:
        """Submits a sweep, once even if the connection breaks, and returns it. The service makes its jobs.

        The `init_from` of its job may have a name, as in `submit`. Raises InvalidSpec and QuotaExceeded.
        """
        return await self._connection.answer(calls.create(await self._exact(spec), key=idempotency_key))

    async def validate(self, spec: Spec) -> SweepResolved:
        """Returns the spec with every default filled in, and the number of its trials; nothing is stored.

        Raises InvalidSpec, naming each field.
        """
        return await self._connection.answer(calls.validate(await self._exact(spec)))

    async def get(self, ref: str) -> SweepView:
        """Returns the sweep with the id `ref`, else the newest of that name, else the only one with that short id.

        Raises NotFound, and Conflict if several have it.
        """
        if ref.startswith("swp_"):
            try:
                return await self._connection.answer(calls.get(ref))
            except NotFound:
                pass  # a sweep may have such a name
        return await self._connection.answer(calls.get(await sweep_id_of(self._connection, ref)))

    def list(
        self,
        *,
        state: Sequence[SweepState] = (),
        name: str | None = None,
        owner: str | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[SweepSummary]:
        """Yields the sweeps that one may read and that match every argument, newest first."""
        where = {"state": [*state] or None, "name": name, "owner": owner}
        return self._connection.pages(calls.sweeps(where), limit=limit)

    def trials(
        self, sweep_id: str, *, sort: Literal["value", "number"] = "value", limit: int | None = None
    ) -> AsyncGenerator[TrialView]:
        """Yields the trials of a sweep, the best first, or in the order in which they are made."""
        return self._connection.pages(calls.trials(sweep_id, sort=sort, limit=limit), limit=limit)

    async def pause(self, sweep_id: str) -> SweepView:
        """Makes no more trials, and pauses those that wait or run. Raises Conflict if it has ended."""
        return await self._connection.answer(calls.act(sweep_id, "pause"))

    async def resume(self, sweep_id: str) -> SweepView:
        """Lets a paused sweep and its trials go on. Raises Conflict if it has ended."""
        return await self._connection.answer(calls.act(sweep_id, "resume"))

    async def cancel(self, sweep_id: str) -> SweepView:
        """Makes no more trials, and cancels those that have not ended. Raises Conflict if it has ended."""
        return await self._connection.answer(calls.act(sweep_id, "cancel"))

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
        more = {"trials": trials, "points": points, "max_parallel": max_parallel}
        return await self._connection.answer(calls.extend(sweep_id, **more))

    async def promote(self, sweep_id: str, number: int) -> TrialView:
        """Lets a trial that was stopped early go on from its newest checkpoint. Raises Conflict if it was not."""
        return await self._connection.answer(calls.promote(sweep_id, number))

    async def delete(self, sweep_id: str, *, jobs: bool = False) -> None:
        """Removes a sweep that has ended; its jobs stay, unless `jobs`: then they go with all that they stored.

        Raises Conflict if it has not ended.
        """
        await self._connection.send(calls.delete(sweep_id, jobs=jobs))

    async def wait(self, sweep_id: str, *, timeout: float | None = None) -> SweepView:  # noqa: ASYNC109 - as in Client
        """Waits until the sweep has ended, however it ends, and returns it. `timeout` is in seconds.

        Raises TimeoutError.
        """
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        sweep = await self._connection.answer(calls.get(sweep_id))
        while not sweep.state.ended:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"sweep {sweep_id} is still {sweep.state} after {timeout:g} s")
            await self._transport.sleep(min(left, _POLL_S))
            sweep = await self._connection.answer(calls.get(sweep_id))
        return sweep

    async def _exact(self, spec: Spec) -> Spec:
        """Returns the spec with an id in the `init_from` of its job."""
        job = spec.get("job") if isinstance(spec, Mapping) else None
        if not isinstance(job, Mapping):
            return spec  # what is wrong with it, the server says
        (exact,) = await with_ids(self._connection, [cast("Mapping[str, Any]", job)])
        return {**cast("Mapping[str, Any]", spec), "job": exact}
