"""Reads batches of jobs, whose bodies may be large: at most one large one of each user at a time."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated

from fastapi import Depends, Request

from api.auth.access import AccessDep
from api.auth.callers import JobWriter
from api.openapi import bodies as declarations
from api.parameters.bodies import read_body
from api.parsing.parser import SentBatch
from api.services import ServicesDep
from torchyard.contract.jobs.requests import MOST_BATCH_BYTES, JobBatch

_EXAMPLE = {"jobs": [{"trainer": "image-classification", "config": {"data": {"source": "digits"}}}], "atomic": False}


async def _bytes(request: Request, services: ServicesDep, caller: JobWriter) -> AsyncGenerator[bytes]:
    """Reads a batch. Beyond the size of other bodies it waits for the user's other ones. Raises TooLarge."""
    async with AsyncExitStack() as stack:
        lock = services.large_bodies.of(caller.key)
        held = False

        async def accept(received: int) -> None:
            nonlocal held
            if not held and received > services.settings.max_body_bytes:
                await stack.enter_async_context(lock)
                held = True

        yield await read_body(request, most=MOST_BATCH_BYTES, accept=accept)


BatchBytes = Annotated[bytes, Depends(_bytes)]
"""A parameter: the bytes of a batch, which are read once for all dependencies."""


@declarations.declares(declarations.json(JobBatch, example=_EXAMPLE))
async def _batch(services: ServicesDep, access: AccessDep, caller: JobWriter, body: BatchBytes) -> SentBatch:
    """Parses a batch, and counts each of its jobs as a request. Raises as `Parser` does, and TooManyRequests."""
    batch = await services.parses_of(body).begin(caller.key, partial(services.parser.batch, body))
    more = len(batch.jobs) - 1
    if more:
        await access.requests.take(caller.key, advice=f"{caller.name} has sent too many jobs", cost=more)
    return batch


Batch = Annotated[SentBatch, Depends(_batch)]
"""A route's parameter: a batch, whose specs are not parsed."""
