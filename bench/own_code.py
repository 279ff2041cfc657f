"""The time of `torchyard run` to the program's first line, of a job's own packages, and the speed of an upload:
`python -m bench.own_code`.

The command runs as a process of its own, in a folder without git. Also measured are its time until the server has the
job, and its CPU time. The peer of an upload is curl, which sends to a bare uvicorn that writes the body to a file. An
nginx would need its WebDAV module.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
import os
from pathlib import Path
from random import Random
import resource
import shutil
import subprocess
import sys
import time

from bench import packages, table
from bench.peers import sink
from bench.service import Service, scratch, up, wait_for
from bench.table import Row
from tests.worker.packages.index import serving
from torchyard.client import Client
from torchyard.client.packing.bundle import Bundle, pack

REPEATS = 5
TREE_FILES, TREE_BYTES = 250, 5_000_000
UPLOAD_BYTES = 200_000_000
_COMMAND = (sys.executable, "-P", "-m", "torchyard.cli", "run", "train.py")
_SCRIPT = "import time\nprint(time.time(), flush=True)\n"


@dataclass(frozen=True)
class Ran:
    """One run, in seconds from the start of the command."""

    submitted: float
    printed: float
    """The program's first line, by its own clock."""
    shown: float
    """The same line on the command's stdout."""
    processor: float
    """The processor time of the command, with git."""


def measure() -> Iterator[Row]:
    with (
        scratch() as folder,
        serving() as index,
        up(folder, package_index=index.url) as service,
        service.client() as client,
    ):
        wait_for(client.workers.list, "the worker, which may start after the API")
        small = _tree(folder / "small", files=1, size=1000, seed=0)
        wait_for(lambda: _is_warm(service, client, small), "a start from the worker's warm process")
        cached = [_run(service, client, small) for _ in range(REPEATS)]
        trees = [_tree(folder / f"tree-{n}", files=TREE_FILES, size=TREE_BYTES, seed=n) for n in range(REPEATS)]
        first = [_run(service, client, tree) for tree in trees]
        again = [_run(service, client, tree) for tree in trees]
        yield from _rows("code uploaded before", cached, at_most=0.8)
        yield from _rows(f"a new folder of 5 MB in {TREE_FILES} files", first, at_most=1.5)
        yield from _rows("the same folder again", again)
        packages.fill(index)
        yield from packages.measure(service, client, index, folder)
        yield from _uploads(client, folder)


def _rows(what: str, runs: Sequence[Ran], *, at_most: float | None = None) -> Iterator[Row]:
    shown = [run.shown for run in runs]
    yield Row(f"`torchyard run` to the first line, {what}", "s", shown, at_most=at_most)
    yield Row("– until the server has the job", "s", [run.submitted for run in runs])
    yield Row("– from there to the line", "s", [run.printed - run.submitted for run in runs])
    yield Row("– CPU time of the command", "s", [run.processor for run in runs])


def _uploads(client: Client, folder: Path) -> Iterator[Row]:
    """Bytes that do not compress, so that both send as many."""
    ours: list[float] = []
    theirs: list[float] = []
    with sink.running(folder / "sink") as peer:
        for number in range(REPEATS):
            code = _tree(folder / f"data-{number}", files=4, size=UPLOAD_BYTES, seed=number)
            with pack(code, max_size=2 * UPLOAD_BYTES) as bundle:
                ours.append(_speed(client, bundle))
                tar = folder / "curl.tar"
                tar.write_bytes(b"".join(bundle.read()))
                theirs.append(_curl(peer.url, tar))
            client.bundles.delete(bundle.sha256)
            shutil.rmtree(code)
    yield Row(
        "upload of 200 MB",
        "MB/s",
        ours,
        peer="curl to a bare uvicorn" if theirs else "curl is not installed",
        theirs=[speed for speed in theirs if speed],
        ratio_at_least=0.5,
    )


def _speed(client: Client, bundle: Bundle) -> float:
    began = time.perf_counter()
    client.bundles.upload(bundle)
    return bundle.size / 1e6 / (time.perf_counter() - began)


def _curl(url: str, tar: Path) -> float:
    """Returns the MB/s of curl; 0 if it is not installed."""
    curl = shutil.which("curl")
    if curl is None:
        return 0.0
    began = time.perf_counter()
    subprocess.run([curl, "--fail", "--silent", "--noproxy", "*", "--upload-file", tar, url], check=True)
    return tar.stat().st_size / 1e6 / (time.perf_counter() - began)


def _is_warm(service: Service, client: Client, tree: Path) -> bool:
    _run(service, client, tree)
    starts = client.workers.list()[0].starts
    return starts is not None and starts.mode == "warm"


def _run(service: Service, client: Client, tree: Path) -> Ran:
    env = {**os.environ, "TORCHYARD_URL": service.url, "TORCHYARD_TOKEN": service.token}
    before, began = _processor(), time.time()
    with subprocess.Popen(
        _COMMAND, cwd=tree, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        shown = time.time()
    if process.returncode:
        sys.exit(f"torchyard run ended with {process.returncode}: {line}")
    created = next(client.jobs.list(limit=1)).created_at.timestamp()
    printed = float(line.rpartition(" ")[2])
    return Ran(created - began, printed - began, shown - began, _processor() - before)


def _processor() -> float:
    """Returns the processor time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _tree(folder: Path, *, files: int, size: int, seed: int) -> Path:
    """Writes a program, and files of `size` random bytes together."""
    random = Random(seed)
    folder.mkdir()
    (folder / "train.py").write_text(_SCRIPT)
    for number in range(files):
        part = folder / f"part-{number % 10}"
        part.mkdir(exist_ok=True)
        (part / f"{number}.bin").write_bytes(random.randbytes(size // files))
    return folder


if __name__ == "__main__":
    table.main(measure)
