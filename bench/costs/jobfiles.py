"""The largest folders and files that a job can leave, for `bench.costs.cases`."""

from collections.abc import Callable
from contextlib import suppress
import os
from pathlib import Path
import struct
from tempfile import TemporaryDirectory, TemporaryFile

from store.blobs.folder import BlobFolder
from store.output.facts import Batch
from store.output.line_patterns import LINE
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.bounds import MOST_KEEP, MOST_METRIC_PATTERNS
from torchyard.contract.files.paths import DEEPEST
from worker.attempts.capture.capturing import Capturing
from worker.attempts.capture.whole import is_whole
from worker.attempts.files.walking import Patterns, TooMany, Walk
from worker.attempts.output.lines import CHUNK
from worker.attempts.output.logged import LoggedMetrics

Prepare = Callable[[], object]

_PATTERN = 500
_HEADER = 1 << 25


def patterns() -> Prepare:
    folder = TemporaryDirectory()  # it is removed with its process
    base = Path(folder.name).joinpath(*["a" * 20] * (DEEPEST - 2))
    base.mkdir(parents=True)
    for number in range(20_000):
        (base / f"a{number}").mkdir()
    names = ["/".join(["**", "a*"] * 100)[: _PATTERN - 3].rstrip("/*") + f"/{number}" for number in range(MOST_KEEP)]

    def walk() -> None:
        with suppress(TooMany):
            for _ in Walk(Path(folder.name), (), most=1_000_000, patterns=Patterns(names)).entries():
                pass

    return walk


def metrics() -> Prepare:
    expression = "(?P<value>(?:a?){200}a{200})(x|y|[a-z]{1,90}){1,9}(?P<key>b)"
    lines = [b"a" * LINE] * (CHUNK // LINE)
    found = LoggedMetrics([expression] * MOST_METRIC_PATTERNS)
    return lambda: found.read(lines, Batch(offsets={}), {})


def header() -> Prepare:
    file = TemporaryFile()  # noqa: SIM115 - it is closed with its process
    text = b'{"a":[' + b'"data_offsets":[0,1],' * (_HEADER // 21 - 1) + b"0]}"
    file.write(struct.pack("<Q", len(text)) + text)
    file.flush()
    return lambda: is_whole(file, "a.safetensors")  # pyright: ignore[reportArgumentType] - it is one


def names() -> Prepare:
    folder = TemporaryDirectory()
    run = RunDir(Path(folder.name) / "job" / "1")
    run.create()
    run.work.mkdir()
    for number in range(20_000):
        (run.work / f"a{number}.pt").write_bytes(b"x")
        os.link(run.work / f"a{number}.pt", run.work / f"b{number}.pt")
    look = Capturing(run, BlobFolder(Path(folder.name) / "blobs"), ["*.pt"], known=set(), limit=1, look_s=0.0)

    def take() -> None:
        assert Path(folder.name).is_dir()
        look.take(1, step=0, final=False, taken=(), warn=lambda _: None)

    return take
