"""What reads what people and jobs wrote, each with an input at its limits. Each runs in a process of its own."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
import json
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryFile
import time
from typing import Any

from bench.costs import sweeps
from torchyard.contract.bundles import MAX_BUNDLE_FILES
from torchyard.contract.errors import TorchyardError
from torchyard.contract.events import Metric
from torchyard.contract.media import DATA_BYTES, PICTURE_BYTES, MediaKind
from torchyard.contract.mediadata import media_data
from torchyard.contract.picture import picture_of
from torchyard.contract.shards import Entry, Index, index_lines, parse_index
from torchyard.contract.spec import MOST_SPEC_BYTES, parse_spec
from torchyard.contract.tar import header, verify

API = "a request's thread of the API"
UPLOAD = "the thread of an upload, in parts"
PROPOSALS = "a process of its own, which the controller starts, with limits of time and memory"
PLAN = "a worker's pass over the queue"
READER = "the job whose data it is"
RELAY = "the worker's thread that reads what jobs wrote"


@dataclass(frozen=True)
class Case:
    """One reader with an input at its limits."""

    what: str
    pays: str
    """Whose thread or process it takes."""
    prepare: Callable[[], Callable[[], object]]
    """Makes the input. Returns what is measured."""


@dataclass(frozen=True)
class CaseCost:
    what: str
    processor_s: float
    memory_mib: float


def measure() -> Iterator[CaseCost]:
    for case in CASES:
        ours, theirs = get_context("fork").Pipe()
        process = get_context("fork").Process(target=_run, args=(case, theirs))
        process.start()
        theirs.close()  # so that a failure is seen
        processor_s, memory_mib = ours.recv()
        process.join()
        yield CaseCost(case.what, processor_s, memory_mib)


def _run(case: Case, answer: Any) -> None:
    run = case.prepare()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    held, used = _peak_mib(), time.process_time()
    with suppress(TorchyardError, ValueError):  # a refusal costs, too
        run()
    answer.send((time.process_time() - used, max(0.0, _peak_mib() - held)))


def _peak_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def _spec() -> Callable[[], object]:
    raw = {"trainer": "script", "config": {"code": "file:///x", "args": ["x" * 20] * 9_000}, "env": {}}
    raw["env"] = {f"V{number}": "x" * 100 for number in range(200)}
    assert len(json.dumps(raw)) < MOST_SPEC_BYTES
    return lambda: parse_spec(raw)


def _picture() -> Callable[[], object]:
    segment = b"\xff\xe1\x00\x02"  # the shortest, so that there are as many as can be
    content = b"\xff\xd8\xff" + b"\xe1\x00\x02" + segment * ((PICTURE_BYTES - 8) // len(segment))
    return lambda: picture_of(content)


def _media() -> Callable[[], object]:
    rows = [[0.5] * 100 for _ in range(DATA_BYTES // 400)]
    values = {"columns": [f"c{number}" for number in range(100)], "rows": rows}
    return lambda: media_data(MediaKind.TABLE, values)


def _event() -> Callable[[], object]:
    line = Metric(time=1, step=1, values={f"key/{number:04}" + "x" * 180: 0.5 for number in range(1000)}).to_json()
    return lambda: Metric.from_json(line)


def _bundle() -> Callable[[], object]:
    file = TemporaryFile()  # noqa: SIM115 - it is closed with its process
    for number in range(MAX_BUNDLE_FILES):
        file.write(header(f"{number:05}/" + "x" * 90, size=0, executable=False))
    file.write(bytes(1024))
    file.seek(0)
    return lambda: verify(file)


def _index() -> Callable[[], object]:
    entries = [Entry(0, f"{number:06}.png", 512 + 1024 * number, 100) for number in range(100_000)]
    lines = [*index_lines(Index({"a.tar": 1 << 30}, entries))]
    return lambda: parse_index(lines, where="the index")


CASES = (
    Case("80,000 wrong keys of a sweep's point", API, sweeps.too_many_keys),
    Case("9,000 points of 10 wrong keys", API, sweeps.wrong_points),
    Case("10,000 points of 7 keys", API, sweeps.most_points),
    Case("one point of 50 options, as a sweep is checked", API, sweeps.one_point),
    Case("the next point by 10,000 trials of 10 keys of 1,000 values", PROPOSALS, sweeps.proposal),
    Case("500 jobs of a batch that wait for each other in circles", API, sweeps.circles),
    Case("10,000 queued jobs of one owner with different requests", PLAN, sweeps.distinct_requests),
    Case("a job spec of 256 KiB", API, _spec),
    Case("a picture of 8 MiB of empty segments", RELAY, _picture),
    Case("a table of 64 KiB", RELAY, _media),
    Case("a line of 1,000 metrics", RELAY, _event),
    Case("an index of 100,000 files in shards", READER, _index),
    Case("a bundle of 20,000 files", UPLOAD, _bundle),
)
