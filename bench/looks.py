"""The CPU time in an hour to watch a working folder of 100,000 files: `python -m bench.looks`.

Watches it as the worker of a running job does: with patterns of `keep` that match all files, and with patterns of
`checkpoints` that match none. The pause after a look says how many looks an hour has. One more look is at the end of an
attempt.
"""

from collections.abc import Iterator
from pathlib import Path
import time

from bench import table
from bench.service import scratch
from bench.table import Row
from store.blobs.folder import BlobFolder
from store.output.facts import OutputLimits, Room
from torchyard.contract.attempts.rundir import WORK, RunDir
from worker.attempts.capture.capturing import Capturing
from worker.attempts.keep.kept import Keeping, KeptFiles

FILES, FOLDERS = 100_000, 100
REPEATS = 3
_MOST = 36.0
"""A hundredth of one processor."""


def measure() -> Iterator[Row]:
    with scratch() as folder:
        run = RunDir(folder / "job" / "1")
        run.create()
        _fill(run.work)
        looks = [_kept(run) for _ in range(REPEATS)]
        yield Row(f"watch {FILES:,} files for `keep`, an hour", "CPU s", looks, at_most=_MOST)
        looks = [_captured(run) for _ in range(REPEATS)]
        yield Row(f"watch {FILES:,} files for `checkpoints`, an hour", "CPU s", looks, at_most=_MOST)
        yield Row(f"search {FILES:,} files at the end of the job", "CPU s", [_last(run) for _ in range(REPEATS)])


def _fill(work: Path) -> None:
    for folder in range(FOLDERS):
        below = work / "results" / f"{folder:03}"
        below.mkdir(parents=True)
        for number in range(FILES // FOLDERS):
            (below / f"{number:05}.txt").touch()


def _kept(run: RunDir) -> float:
    files = _files(run, "results/*")
    _look(files, final=False)  # the next one compares with it
    files._next_look = 0.0  # pyright: ignore[reportPrivateUsage] it is due in minutes
    used = _look(files, final=False)
    return _in_an_hour(used, files._next_look)  # pyright: ignore[reportPrivateUsage]


def _captured(run: RunDir) -> float:
    found = Capturing(run, BlobFolder(run.root / "blobs"), ["**/*.pt"], known=set(), limit=1 << 40)
    began = time.process_time()
    found.take(1 << 25, step=0, final=False, taken=(), warn=lambda _: None)
    used = time.process_time() - began
    return _in_an_hour(used, found._next_look)  # pyright: ignore[reportPrivateUsage]


def _last(run: RunDir) -> float:
    return _look(_files(run), final=True)


def _files(run: RunDir, *patterns: str) -> KeptFiles:
    keeping = Keeping(root=run.root.parent, parts=(WORK,), patterns=patterns)
    none = OutputLimits(artifacts=0)  # the time of the looks alone
    return KeptFiles(keeping, BlobFolder(run.root / "blobs"), room=lambda: Room((), None), limits=none)


def _look(files: KeptFiles, *, final: bool) -> float:
    began = time.process_time()
    files.take(1 << 25, final=final)
    while files.unfinished:
        files.take(1 << 25, final=final)
    return time.process_time() - began


def _in_an_hour(used: float, next_look: float) -> float:
    return 3600 * used / (used + max(0.0, next_look - time.monotonic()))


if __name__ == "__main__":
    table.main(measure)
