"""What reads what people and jobs wrote, each with an input at its limits. Each runs in a process of its own."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
import gc
from multiprocessing import get_context
from pathlib import Path
import time
from typing import Any

from bench.costs import batches, contents, folders, jobfiles, sweeps
from torchyard.contract.errors import TorchyardError

API = "a request's thread of the API"
PARSER = "a process of its own, which the API starts for large bodies, with limits of time and memory"
CONTROLLER = "the controller's thread"
UPLOAD = "the thread of an upload, in parts"
CHECKER = "a process of its own, which the API starts for a large upload, with limits of time and memory"
PROPOSALS = "a process of its own, which the controller starts, with limits of time and memory"
PLAN = "a worker's pass over the queue"
LOADER = "the program that loads the checkpoint"
OUTPUT = "the thread of one attempt that reads what its job wrote"
ATTEMPT = "the thread of one attempt, before it starts, a file at a time"
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
    gc.collect()
    gc.freeze()  # as programs do when they have imported what they need
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    held, used = _peak_mib(), time.process_time()
    with suppress(TorchyardError, ValueError):  # a refusal costs, too
        run()
    answer.send((time.process_time() - used, max(0.0, _peak_mib() - held)))


def _peak_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


CASES = (
    Case("4 MiB of points of a remote worker's attempt", API, batches.of_points),
    Case("4 MiB of lines of a remote worker's attempt", API, batches.of_lines),
    Case("80,000 wrong keys of a sweep's point", PARSER, sweeps.too_many_keys),
    Case("9,000 points of 10 wrong keys", PARSER, sweeps.wrong_points),
    Case("10,000 points of 7 keys", PARSER, sweeps.most_points),
    Case("one point of 50 options, as a sweep is checked", API, sweeps.one_point),
    Case("the next point by 10,000 trials of 10 keys of 1,000 values", PROPOSALS, sweeps.proposal),
    Case("a look at 10,000 trials with 16 MiB of points, before the next is chosen", CONTROLLER, sweeps.known_trials),
    Case("a look at 10,000 trials of asha, before one is promoted", CONTROLLER, sweeps.waiting_trials),
    Case("500 jobs of a batch that wait for each other in circles", API, sweeps.circles),
    Case("10,000 queued jobs of one owner with different requests", PLAN, sweeps.distinct_requests),
    Case("a job spec of 256 KiB", API, contents.spec),
    Case("a picture of 8 MiB of empty segments", RELAY, contents.picture),
    Case("a table of 64 KiB", RELAY, contents.media),
    Case("a line of 1,000 metrics", RELAY, contents.event),
    Case("a list of the 10,000 files of a checkpoint", OUTPUT, folders.manifest),
    Case("a look at a folder of 10,000 files", OUTPUT, folders.look),
    Case("an answer about a checkpoint of 10,000 files", API, folders.answer),
    Case("a part of the tar of 10,000 files", API, folders.part_of_a_tar),
    Case("a digest among 20 checkpoints of 10,000 files", API, folders.named_blob),
    Case("an upload beside 20,000 others of its worker", UPLOAD, folders.upload_beside_others),
    Case("an index of 100,000 files in shards", READER, contents.index),
    Case("a bundle of 8 MiB of empty files", UPLOAD, contents.small_bundle),
    Case("a bundle of 1,000,000 files", CHECKER, contents.bundle),
    Case("2,048 parts among 65,536", API, contents.parts),
    Case("8,000 cells of a table beside 64 KiB of secrets", OUTPUT, contents.secrets_in_a_table),
    Case("1,000,000 values beside a checkpoint's weights", LOADER, contents.values_beside_weights),
    Case("100,000 tensors of a checkpoint", LOADER, contents.tensors),
    Case("a look at 50,000 event files", OUTPUT, contents.event_files),
    Case("3,000 event files that came with the code", ATTEMPT, contents.event_files_before_the_start),
    Case("a walk by 32 patterns of 500 characters, to its end", OUTPUT, jobfiles.patterns),
    Case("64 lines of 4 KiB, searched for metrics by 8 patterns", OUTPUT, jobfiles.metrics),
    Case("a header of safetensors of 32 MiB", OUTPUT, jobfiles.header),
    Case("a look at 20,000 files of two names each", OUTPUT, jobfiles.names),
)
