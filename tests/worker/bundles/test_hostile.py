"""Tars that no packer makes go straight to the worker: each is refused, and nothing of it is left."""

from collections.abc import Callable
import io
from pathlib import Path
import subprocess
import sys
import tarfile
from typing import Any

import pytest

from tests.approved import Approved
from tests.worker.bundles.tars import store, tar_of
from torchyard.contract.bundles.tar import BLOCK, END, header
from torchyard.contract.errors import DataError
from worker.bundles import unpack
from worker.bundles.cache import BundleCache
from worker.bundles.unpack import UnpackReport


def _tar(*members: tarfile.TarInfo, format: int = tarfile.USTAR_FORMAT) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=format) as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    return written.getvalue()


def _member(name: str, kind: bytes = tarfile.REGTYPE, *, size: int = 0, target: str = "", mode: int = 0o644) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.mode = kind, target, size, mode
    return _tar(info)


def _two(first: str, second: str) -> bytes:
    return _tar(tarfile.TarInfo(first), tarfile.TarInfo(second))


HOSTILE: dict[str, Callable[[], bytes]] = {
    "an absolute name": lambda: _member("/tmp/pwned"),
    "a name that leaves": lambda: _member("../pwned"),
    "a name that leaves later": lambda: _member("a/../../pwned"),
    "the folder itself": lambda: _member("."),
    "a link": lambda: _member("link", tarfile.SYMTYPE, target="/etc/passwd"),
    "a link out, then a file below": lambda: _tar(
        _link("a", "/tmp"),
        tarfile.TarInfo("a/pwned"),
    ),
    "a hard link": lambda: _member("hard", tarfile.LNKTYPE, target="/etc/passwd"),
    "a device": lambda: _member("null", tarfile.CHRTYPE),
    "a pipe": lambda: _member("pipe", tarfile.FIFOTYPE),
    "a folder": lambda: _member("folder", tarfile.DIRTYPE, mode=0o755),
    "a program that changes its user": lambda: _member("suid", mode=0o4755),
    "the same name twice": lambda: _two("a", "a"),
    "names that differ in case": lambda: _two("A", "a"),
    "a file as a folder": lambda: _two("a", "a/b"),
    "a sparse file of a terabyte": lambda: _member("sparse", tarfile.GNUTYPE_SPARSE),
    "a size beyond the end": lambda: header("a", size=8**11 - 1, executable=False) + END,
    "a size just beyond the end": lambda: header("a", size=BLOCK + 1, executable=False) + bytes(BLOCK),
    "no end": lambda: tar_of({"a": (b"1", False)})[: 2 * BLOCK],
    "half an end": lambda: tar_of({"a": (b"1", False)})[:-BLOCK],
    "more behind the end": lambda: tar_of({"a": (b"1", False)}) + b"x" * BLOCK,
    "nothing": lambda: b"",
    "no tar": lambda: b"PK\x03\x04" + bytes(4 * BLOCK),
}
QUICK = {
    *("a name that leaves later", "a link out, then a file below", "a hard link", "a device"),
    *("a program that changes its user", "names that differ in case", "a file as a folder", "a size beyond the end"),
    *("no end", "no tar"),
}
"""One of each kind, for the short run."""


def _link(name: str, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=[] if what in QUICK else [pytest.mark.thorough]) for what in HOSTILE]
)
def test_a_hostile_tar_is_refused_and_leaves_nothing(
    cache: BundleCache, what: str, tmp_path: Path, approved: Approved
) -> None:
    sha256 = store(cache.blobs, HOSTILE[what]())
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(DataError) as raised:
        cache.fetch(sha256, owner="ada")
    assert str(raised.value) == approved.of_row("message", sha256=sha256)
    assert list(cache.tree(sha256, owner="ada").parent.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({*before, cache.root.name})


def test_what_unpacks_has_limits_of_processor_time_memory_and_file_size(tmp_path: Path) -> None:
    """A stored blob that is damaged, or was put there, may have millions of names."""
    names = ["RLIMIT_CPU", "RLIMIT_AS", "RLIMIT_FSIZE", "RLIMIT_CORE"]
    shown = f"print([unpack.resource.getrlimit(getattr(unpack.resource, name))[0] for name in {names}], flush=True)"
    done = child(tmp_path, f"unpack.unpack = lambda *_, **__: {shown}")
    assert done.stdout.splitlines()[0] == str([unpack.cpu_seconds(len(END)), 1 << 30, len(END), 0]).encode()


def test_a_tar_that_takes_too_long_or_too_much_is_refused_for_ever(
    cache: BundleCache, tmp_path: Path, approved: Approved
) -> None:
    assert unpack.cpu_seconds(2 << 30) < 3600, "the worker waits no longer"
    large = child(tmp_path, "unpack.unpack = lambda *_, **__: bytearray(2 << 30)")
    assert UnpackReport.from_json(large.stdout).invalid == approved("invalid")


def test_a_tar_that_takes_too_long_is_the_jobs_own_error(
    cache: BundleCache, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    start: Any = subprocess.Popen

    def slow(_: list[str], **more: Any) -> Any:
        return start(["sh", "-c", "kill -XCPU $$"], **more)

    monkeypatch.setattr("worker.bundles.cache.subprocess.Popen", slow)
    with pytest.raises(DataError) as raised:
        cache.fetch(store(cache.blobs, tar_of({"a": (b"1", False)})), owner="ada")
    assert str(raised.value) == approved("message")


def child(tmp_path: Path, changed: str) -> "subprocess.CompletedProcess[bytes]":
    """Unpacks an empty tar by the program, of which something is changed."""
    folder, tar = tmp_path / "into", tmp_path / "tar"
    folder.mkdir(exist_ok=True)
    tar.write_bytes(END)
    code = f"from worker.bundles import unpack\n{changed}\nunpack.main()"
    with tar.open("rb") as file:
        return subprocess.run(
            [sys.executable, "-c", code, str(folder), "0"], stdin=file, capture_output=True, check=False
        )
