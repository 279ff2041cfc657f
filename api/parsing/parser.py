"""Parses bodies of which large ones are many objects. Large ones take the time of another process."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic_core import from_json

from api.parsing import process
from torchyard.contract.errors import TooLarge, TorchyardError, Unavailable
from torchyard.contract.sweeps.spec import Point, SweepExtension, SweepSpec, parse_sweep
from torchyard.contract.wire.schema import parse_request, parsed_json
from torchyard.host.confined import Confined, Ended

LARGE_BYTES = 1 << 16
"""A body of this size is parsed in another process: here nobody else would be answered meanwhile."""
CPU_S = 10
"""Seconds of a processor that a body may take there. One at its limits takes one."""
_LOAD_CPU_S = 30
_MOST_TIMES = 8
"""So many times as large as a body its parts may be: 1e9 is written 1000000000.0."""


@dataclass(frozen=True)
class SentBatch:
    """A batch of jobs, whose specs are not parsed."""

    jobs: Sequence[bytes]
    """Each as JSON."""
    atomic: bool


class Parser:
    """Call it in threads: one large body at a time is parsed.

    Each method raises what parsing the body does, TooLarge if it takes more than it may, and Unavailable.
    """

    def __init__(self, module: str = process.__name__) -> None:
        """`module`: what the process runs."""
        self._process = Confined(module, load_cpu_s=_LOAD_CPU_S)

    def close(self) -> None:
        self._process.close()

    def sweep(self, body: bytes) -> SweepSpec:
        if len(body) < LARGE_BYTES:
            return parse_sweep(parsed_json(body))
        head, *rest = self._parts(b"sweep", body)
        sweep = SweepSpec.model_validate_json(head)
        return sweep.model_copy(update={"points": _points(rest)}) if rest else sweep

    def extension(self, body: bytes) -> SweepExtension:
        if len(body) < LARGE_BYTES:
            return parse_request(SweepExtension, parsed_json(body))
        head, *rest = self._parts(b"extension", body)
        extension = SweepExtension.model_validate_json(head)
        return extension.model_copy(update={"points": _points(rest)}) if rest else extension

    def batch(self, body: bytes) -> SentBatch:
        atomic, *jobs = process.batch_parts(body) if len(body) < LARGE_BYTES else self._parts(b"batch", body)
        return SentBatch(jobs, atomic=from_json(atomic))

    def _parts(self, kind: bytes, body: bytes) -> Sequence[bytes]:
        try:
            answer = self._process.ask(kind + b"\n" + body, cpu_s=CPU_S, most=_MOST_TIMES * len(body) + LARGE_BYTES)
        except Ended as end:
            raise _problem(end) from None
        except OSError as error:
            raise Unavailable(f"no process could be started to read a large body: {error}") from None
        return process.parts_of(answer)


def _problem(end: Ended) -> TorchyardError:
    if end.too_slow or end.too_long:
        return TooLarge(f"the body takes more than {CPU_S} s of a processor to read: send it in several")
    return Unavailable(f"the process that reads large bodies has ended with {end.code}: send the body again")


def _points(parts: Sequence[bytes]) -> list[Point]:
    return [point for part in parts for point in from_json(part)]
