"""The cache of unpacked bundles: `OWNER/SHA256/BOOT` is the tree of a bundle as an owner of jobs gave it.

The last name is the id of the host's boot: what was written before a crash of the host is not believed, so nothing has
to be synced. In a folder that hosts share, jobs of other hosts read on after it: there it is always the same name, and
what is unpacked is synced. Jobs have no access but to read what their specs name. A folder `OWNER/SHA256` is also the
lock of its bundle.
"""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
import errno
import fcntl
import logging
import os
from pathlib import Path
import signal
import subprocess
import sys
import time
import uuid

from store.worker.records import BlobStore
from torchyard.contract.errors import DataError, NotFound
from torchyard.host import disk, failpoints
from torchyard.host.failpoints import failpoint
from worker.bundles.unpack import UnpackReport, cpu_seconds
from worker.host import era
from worker.host.untrusted import folders_inside, remove_inside

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TIMEOUT_S = 3600.0
POLL_S = 0.05

Check = Callable[[], object]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BundleCache:
    """The bundles that are unpacked below `root`, by any number of threads and programs. They come from `blobs`."""

    root: Path
    blobs: BlobStore
    shared: bool = False
    """Whether other hosts read what is unpacked here."""

    def tree(self, sha256: str, *, owner: str) -> Path:
        """Returns where the bundle's files are or would be."""
        return self.root / owner / sha256 / era.name(shared=self.shared)

    def fetch(self, sha256: str, *, owner: str, check: Check = lambda: None) -> Path:
        """Unpacks the bundle unless it is here, and returns the folder with its files.

        Whoever asks while another one unpacks it waits. `check` is called again and again meanwhile, and may raise to
        end the wait and the unpacking. Raises DataError if the store has no such bundle or a damaged one, and OSError.
        """
        tree = self.tree(sha256, owner=owner)
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(tree.parent, check=check):
            if not tree.is_dir():
                self._unpack(sha256, tree, check)
            os.utime(tree.parent)  # those that were not used for longest are removed first
        return tree

    def _unpack(self, sha256: str, tree: Path, check: Check) -> None:
        """Unpacks into a temporary folder, and renames it once it is complete."""
        folder = tree.parent
        remove_leftovers(folder, keep=tree.name)
        fresh = folder / f".{uuid.uuid4().hex}"
        try:
            with self.blobs.open(sha256) as blob:
                disk.require_free_space(folder, os.fstat(blob.fileno()).st_size)
                fresh.mkdir(mode=0o700)
                report = _run(blob.fileno(), fresh, sha256, check)
            if report.error:
                raise OSError(report.error, os.strerror(report.error), str(folder))
            if report.invalid:
                raise DataError(
                    f"the stored bundle {sha256} cannot be unpacked: {report.invalid}. Delete it, and upload it again"
                )
            era.end_write(fresh, shared=self.shared)
            failpoint("bundle.rename")
            fresh.rename(tree)
        except NotFound:
            raise DataError(f"the bundle {sha256} is no longer stored: upload it again") from None
        finally:
            remove_inside(folder, fresh.name)
        failpoint("bundle.renamed")


def remove_leftovers(folder: Path, *, keep: str) -> None:
    """Removes all but `keep` from the folder of a bundle: needs its lock. Raises OSError."""
    for name in folders_inside(folder):
        if name != keep:
            remove_inside(folder, name)


def remove(folder: Path) -> bool:
    """Removes the folder of a bundle: needs its lock. Returns False if something is left. Raises OSError."""
    for name in folders_inside(folder):
        if not name.startswith("."):
            (folder / name).rename(folder / f".{uuid.uuid4().hex}")  # so that no part of it looks whole
    return remove_inside(folder.parent, folder.name)


@contextmanager
def locked(folder: Path, *, check: Check = lambda: None) -> Generator[None]:
    """Makes the folder of a bundle and locks it. Waits for others, and calls `check` meanwhile. Raises OSError."""
    with ExitStack() as stack:
        while True:
            folder.parent.mkdir(mode=0o700, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            try:
                descriptor = os.open(folder, _FLAGS)
            except FileNotFoundError:  # it was removed a moment ago
                continue
            with ExitStack() as opened:
                opened.callback(os.close, descriptor)
                _wait_for_lock(descriptor, check)
                if is_still(folder, descriptor):
                    stack.push(opened.pop_all())
                    break
        yield


@contextmanager
def locked_if_free(folder: Path) -> Generator[bool]:
    """Locks the folder of a bundle, if nobody has it. Yields whether it is locked. Raises OSError."""
    descriptor = os.open(folder, _FLAGS)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield is_still(folder, descriptor)
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, check: Check) -> None:
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            check()
            time.sleep(POLL_S)


def is_still(folder: Path, descriptor: int) -> bool:
    """Returns whether the open folder is the one that has this name."""
    try:
        return os.path.samestat(folder.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _run(blob: int, folder: Path, sha256: str, check: Check) -> UnpackReport:
    """Has a child unpack, which may write to `folder` alone. Raises OSError, and what `check` raises meanwhile."""
    command = [sys.executable, "-P", "-m", "worker.bundles.unpack", str(folder.absolute()), sha256]
    armed = {name: value for name, value in os.environ.items() if name == failpoints.VARIABLE}
    pipe, deadline = subprocess.PIPE, time.monotonic() + _TIMEOUT_S
    with subprocess.Popen(command, stdin=blob, stdout=pipe, stderr=pipe, env=armed) as child:
        try:
            while (output := _output_of(child)) is None:
                check()
                if time.monotonic() > deadline:
                    raise OSError(errno.EIO, f"a bundle was not unpacked in {_TIMEOUT_S:.0f} s", str(folder))
        except BaseException:
            child.kill()
            raise
    if child.returncode == 0:
        return UnpackReport.from_json(output[0])
    if child.returncode == -signal.SIGXCPU:
        return UnpackReport(invalid=f"it takes more than {cpu_seconds(os.fstat(blob).st_size)} s of processor time")
    logger.error(
        "unpacking %s failed with exit code %d: %s", sha256, child.returncode, output[1].decode(errors="replace")
    )
    raise OSError(errno.EIO, f"the process that unpacks a bundle ended with {child.returncode}", str(folder))


def _output_of(child: "subprocess.Popen[bytes]") -> tuple[bytes, bytes] | None:
    """Returns what the child has written, or None if it has not ended after a moment."""
    try:
        return child.communicate(timeout=POLL_S)
    except subprocess.TimeoutExpired:
        return None
