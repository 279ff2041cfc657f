"""Submits many jobs with one request."""

from collections.abc import Generator, Iterator, Mapping, Sequence
import logging
import time

from pydantic_core import from_json

from api.auth.callers import JobWriter
from api.openapi.routers import guarded
from api.parameters.batches import Batch
from api.parameters.idempotency import KeyedBatch
from api.parameters.reads import Parts, writes_in_turns
from api.services import Services, ServicesDep
from store.jobs import batches
from store.jobs.batches import Refused
from store.jobs.submission import Submission
from torchyard.contract.errors import FieldError, TooLarge, TorchyardError, Unavailable, kept
from torchyard.contract.jobs.submissions import BatchError, BatchItem, BatchView
from torchyard.contract.spec.maximums import within
from torchyard.contract.spec.spec import MOST_SPEC_BYTES, Spec, parse_spec

router = guarded("jobs", Unavailable)

_log = logging.getLogger(__name__)

_PART_S = 0.02
"""After so long of checking specs, others have a turn."""


@router.post("/jobs/batch", response_model=BatchView)
@writes_in_turns
def submit_batch(services: ServicesDep, caller: JobWriter, sent: Batch, keyed: KeyedBatch) -> Parts[BatchView]:
    """Submits up to 10,000 jobs. The answer has an id or an error for each job.

    An `atomic` batch has at most 500 jobs: the service stores all or none of them. After an interruption, send the same
    batch with the same `Idempotency-Key` again: the service submits only the missing jobs.
    """
    outcomes: dict[int, str | Exception] = {}
    specs = list(enumerate(sent.jobs))
    for first in range(0, len(specs), batches.MOST):
        # Part by part, because the parsed specs of a whole batch would take much memory.
        wanted, errors = yield from _checked(services, caller, specs[first : first + batches.MOST])
        if sent.atomic and errors:
            raise _nothing_stored(errors)
        outcomes |= errors
        try:
            outcomes |= batches.submit_part(services.store, wanted, whole=keyed, atomic=sent.atomic)
        except Refused as refused:
            raise _nothing_stored(refused.errors) from None
        except Unavailable as error:
            if not any(isinstance(each, str) for each in outcomes.values()):
                raise
            outcomes |= {index: error for index, _ in specs[first:] if index not in outcomes}
            break
        yield
    return BatchView.model_construct(data=[_item(index, outcomes[index]) for index in range(len(specs))])


def _checked(
    services: Services, caller: JobWriter, specs: Sequence[tuple[int, bytes]]
) -> Generator[None, None, tuple[dict[int, Submission], dict[int, Exception]]]:
    """Returns the valid jobs and the errors of the others, by their indexes."""
    wanted: dict[int, Submission] = {}
    errors: dict[int, Exception] = {}
    settings, began = services.settings, time.monotonic()
    for index, sent in specs:
        try:
            spec = within(_parsed(sent), settings.maximums)
            wanted[index] = Submission(spec, caller, settings.visibility)
        except TorchyardError as error:
            errors[index] = kept(error)
        if time.monotonic() - began > _PART_S:
            yield
            began = time.monotonic()
    return wanted, errors


def _parsed(sent: bytes) -> Spec:
    """Raises InvalidSpec, and TooLarge for what would be too large by itself."""
    if len(sent) > MOST_SPEC_BYTES:
        raise TooLarge(f"the job spec has {len(sent)} bytes: send at most {MOST_SPEC_BYTES}")
    return parse_spec(from_json(sent))


def _nothing_stored(errors: Mapping[int, Exception]) -> Exception:
    """Returns the errors of jobs as that of the whole batch, of the kind of the first."""
    index, first = next(iter(errors.items()))
    if not isinstance(first, TorchyardError):
        return first
    others = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
    return type(first)(
        f"nothing is stored, because of job {index}{others}: {first.message}",
        errors=tuple(field for index, error in errors.items() for field in _fields(f"jobs.{index}", error)),
    )


def _fields(path: str, error: Exception) -> Iterator[FieldError]:
    if not isinstance(error, TorchyardError):
        yield FieldError(path, "an internal error occurred")
    elif not error.errors:
        yield FieldError(path, error.message)
    else:
        yield from (FieldError(f"{path}.{each.field}" if each.field else path, each.message) for each in error.errors)


def _item(index: int, made: str | Exception) -> BatchItem:
    if isinstance(made, str):
        return BatchItem.model_construct(index=index, id=made)
    if not isinstance(made, TorchyardError):
        _log.error("job %d of a batch was not stored", index, exc_info=made)
        made = TorchyardError("an internal error occurred: see the service's log")
    return BatchItem(index=index, error=BatchError.of(made))
