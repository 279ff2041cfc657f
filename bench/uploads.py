"""Uploads of many files and of many bytes, and of one file that changed, beside rsync: `python -m bench.uploads`.

Not part of `make bench`: it fills 10 GB of a disk for minutes. The bytes do not compress. The figure is that of
`data push` without its start: the folder is listed, packed, sent, checked and stored durably. The
CPU time is that of the client and of all processes of the service. rsync copies to another folder of the same disk,
with delta transfer and compression as over a network (`-a --no-whole-file -z`); the CPU time is that of all its
processes. To find changes, rsync compares sizes and times, and `data push` reads all files.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
import os
from pathlib import Path
import re
import resource
import shutil
import subprocess
import sys
import time

from bench import table
from bench.service import Service, scratch, up, wait_for
from bench.table import Row
from torchyard.client import Client
from torchyard.client.packing.bundle import pack

REPEATS = 3
MOST = 4 << 30
_SIZES = {"100,000 files of 2 KB": (100_000, 2_000), "2 GiB in 64 files": (64, 32 << 20)}


@dataclass(frozen=True)
class Took:
    """One transfer."""

    wall_s: float
    processor_s: float
    sent: int


def measure() -> Iterator[Row]:
    os.environ["TORCHYARD_MAX_BUNDLE_BYTES"] = str(MOST)
    rsync = shutil.which("rsync")
    with scratch() as folder, up(folder) as service, service.client() as client:
        wait_for(client.workers.list, "the worker, which may start after the API")
        for number, (what, (files, size)) in enumerate(_SIZES.items()):
            source = folder / f"source-{number}"
            _write(source, files=files, size=size)
            found = [_once(service, client, source, rsync, size=size) for _ in range(_repeats())]
            for index, moment in enumerate(("first", "one file changed")):
                ours = [each[index][0] for each in found]
                theirs = [took for each in found if (took := each[index][1]) is not None]
                yield from _rows(f"{what}, {moment}", ours, theirs)
            shutil.rmtree(source)


def _rows(what: str, ours: list[Took], theirs: list[Took]) -> Iterator[Row]:
    parts: tuple[tuple[str, str, Callable[[Took], float]], ...] = (
        ("seconds", "s", lambda took: took.wall_s),
        ("CPU time", "s", lambda took: took.processor_s),
        ("bytes sent", "MB", lambda took: took.sent / 1e6),
    )
    for name, unit, of in parts:
        peer = "rsync -a --no-whole-file -z" if theirs else "rsync is not installed"
        yield Row(f"{what}: {name}", unit, [*map(of, ours)], peer=peer, theirs=[*map(of, theirs)])


def _once(
    service: Service, client: Client, source: Path, rsync: str | None, *, size: int
) -> list[tuple[Took, Took | None]]:
    """Sends the folder to where nothing of it is, and again after one file in its middle has changed."""
    target = source.with_name("target")
    found: list[tuple[Took, Took | None]] = []
    bundles: list[str] = []
    for _ in range(2):
        took, sha256 = _push(service, client, source)
        bundles.append(sha256)
        found.append((took, None if rsync is None else _rsync(rsync, source, target)))
        files = sorted(source.rglob("*.bin"))
        files[len(files) // 2].write_bytes(os.urandom(size))
    for sha256 in bundles:
        client.bundles.delete(sha256)
    shutil.rmtree(target, ignore_errors=True)
    return found


def _push(service: Service, client: Client, source: Path) -> tuple[Took, str]:
    copied = 0

    def count(size: int) -> None:
        nonlocal copied
        copied += size

    before, began = _processor(service), time.perf_counter()
    with pack(source, max_size=MOST, asks_git=False) as bundle:
        client.bundles.upload(bundle, on_copied=count)
        took = Took(time.perf_counter() - began, _processor(service) - before, bundle.size - copied)
        return took, bundle.sha256


def _rsync(rsync: str, source: Path, target: Path) -> Took:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [rsync, "-a", "--no-whole-file", "-z", "--stats", f"{source}/", f"{target}/"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    sent = re.search(r"Total bytes sent: ([\d,]+)", said)
    assert sent is not None
    return Took(time.perf_counter() - began, used, int(sent[1].replace(",", "")))


def _processor(service: Service) -> float:
    """Returns the processor time of this process, and of the service with all that its processes have ended."""
    mine = resource.getrusage(resource.RUSAGE_SELF)
    ticks = 0
    for pid in service.pids.values():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return mine.ru_utime + mine.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


def _write(folder: Path, *, files: int, size: int) -> None:
    for number in range(files):
        inner = folder / f"{number // 500:04}"
        inner.mkdir(parents=True, exist_ok=True)
        (inner / f"{number:06}.bin").write_bytes(os.urandom(size))


def _repeats() -> int:
    return int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS


if __name__ == "__main__":
    table.main(measure)
