"""Submits many jobs with one request."""

from collections.abc import Generator, Iterator, Mapping
from itertools import islice
import logging
import time
from typing import Any

from pydantic_core import to_json

from api.access.auth import JobWriter
from api.openapi.routers import guarded
from api.parameters.batches import Batch
from api.parameters.idempotency import KeyedBatch
from api.parameters.reads import Parts, writes_in_turns
from api.services import Services, ServicesDep
from store.commands import batches
from store.commands.batches import Refused
from store.facts.submission import KeyedRequest, Submission
from torchyard.contract.errors import FieldError, TooLarge, TorchyardError, Unavailable
from torchyard.contract.spec import MOST_SPEC_BYTES, Spec, parse_spec, with_grace_within
from torchyard.contract.views.jobs import BatchError, BatchItem, BatchView

router = guarded("jobs", Unavailable)

_log = logging.getLogger(__name__)

_PART_S = 0.02
"""After so long of checking specs, others have a turn."""

_Made = dict[int, str | Exception]
"""Of each job its id or its error, by its index."""


@router.post("/jobs/batch", response_model=BatchView)
@writes_in_turns
def submit_batch(services: ServicesDep, caller: JobWriter, sent: Batch, keyed: KeyedBatch) -> Parts[BatchView]:
    """Submits up to 10,000 jobs. Each has its own id or its own error; an `atomic` batch of at most 500 is all or none.

    A batch that was interrupted goes on where it stopped when it is sent again with the same `Idempotency-Key`.
    """
    errors: dict[int, Exception] = {}
    wanted = yield from _checked(services, caller, sent.jobs, errors)
    if sent.atomic and errors:
        raise _nothing_stored(errors)
    made: _Made = {**errors}
    yield from _stored(services, wanted, keyed, made, atomic=sent.atomic)
    return BatchView.model_construct(data=[_item(index, made[index]) for index in range(len(sent.jobs))])


def _checked(
    services: Services, caller: JobWriter, specs: list[Any], errors: dict[int, Exception]
) -> Generator[None, None, dict[int, Submission]]:
    """Returns the valid jobs by their indexes, and adds the errors of the others."""
    wanted: dict[int, Submission] = {}
    settings, began = services.settings, time.monotonic()
    for index, sent in enumerate(specs):
        try:
            spec = with_grace_within(_parsed(sent), settings.max_stop_grace)
            wanted[index] = Submission(spec, caller, settings.visibility)
        except TorchyardError as error:
            errors[index] = error
        if time.monotonic() - began > _PART_S:
            yield
            began = time.monotonic()
    return wanted


def _parsed(sent: Any) -> Spec:
    """Raises InvalidSpec, and TooLarge for what would be too large by itself."""
    size = len(to_json(sent))
    if size > MOST_SPEC_BYTES:
        raise TooLarge(f"the job spec has {size} bytes: send at most {MOST_SPEC_BYTES}")
    return parse_spec(sent)


def _stored(
    services: Services, wanted: dict[int, Submission], keyed: KeyedRequest | None, made: _Made, *, atomic: bool
) -> Generator[None]:
    """Stores the jobs, and adds to `made` what became of each. Raises what `submit` does if none of them is stored."""
    begun = False
    for part in _parts(wanted):
        try:
            made |= batches.submit(services.store, part, whole=keyed, atomic=atomic)
        except Refused as refused:
            raise _nothing_stored(refused.errors) from None
        except Unavailable as error:
            if not begun:
                raise
            made |= {index: error for index in wanted if index not in made}
            return
        begun = True
        yield


def _parts(wanted: Mapping[int, Submission]) -> Iterator[dict[int, Submission]]:
    left = iter(wanted.items())
    while part := dict(islice(left, batches.MOST)):
        yield part


def _nothing_stored(errors: Mapping[int, Exception]) -> Exception:
    """Returns the errors of jobs as that of the whole batch, of the kind of the first."""
    first = next(iter(errors.values()))
    if not isinstance(first, TorchyardError):
        return first
    others = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
    return type(first)(
        f"nothing is stored, because of job {next(iter(errors))}{others}: {first.message}",
        errors=tuple(field for index, error in errors.items() for field in _fields(index, error)),
    )


def _fields(index: int, error: Exception) -> Iterator[FieldError]:
    place = f"jobs.{index}"
    fields = error.errors if isinstance(error, TorchyardError) else ()
    if not fields:
        yield FieldError(place, error.message if isinstance(error, TorchyardError) else "an internal error occurred")
    for each in fields:
        yield FieldError(f"{place}.{each.field}" if each.field else place, each.message)


def _item(index: int, made: str | Exception) -> BatchItem:
    if isinstance(made, str):
        return BatchItem.model_construct(index=index, id=made)
    if not isinstance(made, TorchyardError):
        _log.error("job %d of a batch was not stored", index, exc_info=made)
        made = TorchyardError("an internal error occurred: see the service's log")
    return BatchItem(index=index, error=BatchError.of(made))
