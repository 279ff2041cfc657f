"""The readers of what people and jobs write, each with an input at its limit and in a process of its own."""

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

API = "API, request thread"
PARSER = "API, process for large bodies, with limits of time and memory"
CONTROLLER = "controller thread"
UPLOAD = "API, upload thread, in parts"
CHECKER = "API, process for large uploads, with limits of time and memory"
PROPOSALS = "controller, process with limits of time and memory"
PLAN = "worker, pass over the queue"
LOADER = "program that loads the checkpoint"
OUTPUT = "worker, output thread of the attempt"
ATTEMPT = "worker, thread of the attempt before it starts, one file at a time"
READER = "job that reads the data"
RELAY = "worker, output thread of all jobs"


@dataclass(frozen=True)
class Case:
    """One reader with an input at its limits."""

    what: str
    pays: str
    """The thread or process that does the work."""
    prepare: Callable[[], Callable[[], object]]
    """Makes the input and returns the call to measure."""


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
    Case("4 MiB of metric points from a remote worker", API, batches.of_points),
    Case("4 MiB of log lines from a remote worker", API, batches.of_lines),
    Case("sweep with 80,000 unknown keys in a trial", PARSER, sweeps.too_many_keys),
    Case("sweep of 9,000 trials with 10 unknown keys each", PARSER, sweeps.wrong_points),
    Case("sweep of 10,000 trials with 7 keys each", PARSER, sweeps.most_points),
    Case("check of one trial with 50 options", API, sweeps.one_point),
    Case("TPE proposal after 10,000 trials with 10 keys of 1,000 values", PROPOSALS, sweeps.proposal),
    Case("read 10,000 trials with 16 MiB of settings before a proposal", CONTROLLER, sweeps.known_trials),
    Case("read 10,000 ASHA trials before a promotion", CONTROLLER, sweeps.waiting_trials),
    Case("batch of 500 jobs with circular dependencies", API, sweeps.circles),
    Case("10,000 queued jobs of one owner with different resources", PLAN, sweeps.distinct_requests),
    Case("job spec of 256 KiB", API, contents.spec),
    Case("image of 8 MiB of empty segments", RELAY, contents.picture),
    Case("table of 64 KiB", RELAY, contents.media),
    Case("log call with 1,000 metrics", RELAY, contents.event),
    Case("file list of a checkpoint of 10,000 files", OUTPUT, folders.manifest),
    Case("search for checkpoints in a folder of 10,000 files", OUTPUT, folders.look),
    Case("answer with a checkpoint of 10,000 files", API, folders.answer),
    Case("part of a tar download of 10,000 files", API, folders.part_of_a_tar),
    Case("search for a blob in 20 checkpoints of 10,000 files", API, folders.named_blob),
    Case("start of an upload beside 20,000 others of the worker", UPLOAD, folders.upload_beside_others),
    Case("shard index of 100,000 files", READER, contents.index),
    Case("upload of 8 MiB of empty files", UPLOAD, contents.small_bundle),
    Case("upload of 1,000,000 files", CHECKER, contents.bundle),
    Case("search for 2,048 parts among 65,536 stored ones", API, contents.parts),
    Case("mask 64 KiB of secrets in a table of 8,000 cells", OUTPUT, contents.secrets_in_a_table),
    Case("checkpoint with 1,000,000 values beside its weights", LOADER, contents.values_beside_weights),
    Case("checkpoint with 100,000 tensors", LOADER, contents.tensors),
    Case("search for 50,000 TensorBoard event files", OUTPUT, contents.event_files),
    Case("3,000 event files in the uploaded code", ATTEMPT, contents.event_files_before_the_start),
    Case("search for files by 32 patterns of 500 characters", OUTPUT, jobfiles.patterns),
    Case("search 64 lines of 4 KiB by 8 metric patterns", OUTPUT, jobfiles.metrics),
    Case("safetensors header of 32 MiB", OUTPUT, jobfiles.header),
    Case("search for checkpoints among 20,000 files with two hard links each", OUTPUT, jobfiles.names),
)
