"""`python -P -m api.parsing.process` parses large bodies, and answers parts of JSON of which none takes long to parse.

A question is a kind of body, a line, and the body.
"""

from collections.abc import Callable, Iterator, Sequence
import struct
from typing import Any

from pydantic_core import from_json, to_json

from torchyard.contract import errors
from torchyard.contract.errors import FieldError, TooLarge, TorchyardError, Unavailable
from torchyard.contract.jobs.requests import parse_batch
from torchyard.contract.sweeps.points import check_sizes
from torchyard.contract.sweeps.spec import Point, SweepExtension, SweepSpec, parse_sweep
from torchyard.contract.wire.schema import parse_request, parsed_json
from torchyard.host.confined import Answer, serve

MEMORY_BYTES = 2 << 30
"""Memory that the process may have, with Python and its modules: a batch of 16 MiB takes a quarter of it."""
MOST_BATCH_VALUES = 1_000_000
"""The most keys and values of a batch."""
_NICE = 5
"""The processor is for who waits for a small answer first."""
_PART_BYTES = 1 << 15
"""About so many bytes of points are one part."""
_SIZE = struct.Struct("<I")
_WRONG, _RIGHT = b"-", b"+"
_KINDS = {kind.__name__: kind for kind in errors.all_errors()}


def main() -> None:
    serve(_prepared, memory_bytes=MEMORY_BYTES, nice=_NICE)


def parts_of(answer: bytes) -> Sequence[bytes]:
    """Returns the parts of an answer. Raises the error that it tells."""
    if answer[:1] == _WRONG:
        failure: dict[str, Any] = from_json(answer[1:])
        kind = _KINDS.get(failure["kind"], Unavailable)
        raise kind(failure["message"], errors=tuple(FieldError(*each) for each in failure["errors"]))
    return [*_cut(memoryview(answer)[1:])]


def sweep_parts(body: bytes) -> list[bytes]:
    """Returns a sweep with its first point alone, and parts of all points. Raises InvalidRequest and InvalidSpec."""
    sweep = parse_sweep(parsed_json(body))
    check_sizes(sweep)
    return [_without_points(sweep), *_points(sweep.points)]


def extension_parts(body: bytes) -> list[bytes]:
    """Returns what is added to a sweep without its points, and parts of all points. Raises InvalidRequest."""
    more = parse_request(SweepExtension, parsed_json(body))
    return [_without_points(more), *_points(more.points or ())]


def batch_parts(body: bytes) -> list[bytes]:
    """Returns whether a batch is atomic, and each of its job specs. Raises InvalidRequest and TooLarge."""
    if sum(map(body.count, (b",", b"[", b"{"))) > MOST_BATCH_VALUES:
        raise TooLarge(f"the batch has more than {MOST_BATCH_VALUES} keys and values: send several")
    batch = parse_batch(parsed_json(body))
    return [to_json(batch.atomic), *(to_json(job, inf_nan_mode="constants") for job in batch.jobs)]


_PARTS: dict[bytes, Callable[[bytes], list[bytes]]] = {
    b"sweep": sweep_parts,
    b"extension": extension_parts,
    b"batch": batch_parts,
}


def _prepared(_: bytes) -> Answer:
    return _answered


def _answered(question: bytes) -> bytes:
    kind, _, body = question.partition(b"\n")
    try:
        return _RIGHT + b"".join(piece for part in _PARTS[kind](body) for piece in (_SIZE.pack(len(part)), part))
    except TorchyardError as error:
        return _error_json(error)
    except MemoryError:
        most = f"{MEMORY_BYTES >> 30} GiB of memory"
        return _error_json(TooLarge(f"the body takes more than {most} to read: send it in several"))


def _error_json(error: TorchyardError) -> bytes:
    fields = [(each.field, each.message) for each in error.errors]
    return _WRONG + to_json({"kind": type(error).__name__, "message": error.message, "errors": fields})


def _cut(answer: memoryview) -> Iterator[bytes]:
    while answer:
        end = _SIZE.size + _SIZE.unpack_from(answer)[0]
        yield bytes(answer[_SIZE.size : end])
        answer = answer[end:]


def _without_points(sent: SweepSpec | SweepExtension) -> bytes:
    first = {"points": sent.points[:1]} if sent.points else {}
    return sent.model_copy(update=first).model_dump_json(exclude_unset=True).encode()


def _points(points: Sequence[Point]) -> Iterator[bytes]:
    some, size = list[bytes](), 0
    for point in points:
        some.append(to_json(point))
        size += len(some[-1])
        if size > _PART_BYTES:
            yield b"[" + b",".join(some) + b"]"
            some, size = [], 0
    if some:
        yield b"[" + b",".join(some) + b"]"


if __name__ == "__main__":
    main()
