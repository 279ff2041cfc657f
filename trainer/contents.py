"""The digests of a run's data: made beside the first epoch, saved in checkpoints, and compared before a resume."""

from collections.abc import Mapping
import contextlib
import hashlib
import os
from pathlib import Path
import subprocess
import sys
import tempfile
from typing import Any, BinaryIO, Self
import zlib

import torch
from torch import Tensor

from torchyard.contract.bundles.names import digest_in
from torchyard.contract.errors import DataError
from torchyard.run import Run
from trainer.data.identity import Identity, read_records, records
from trainer.task import Task
from trainer.world import World

FINISH_S = 30.0
"""How long the end of a run waits for digests that are not ready."""
_POLL_S = 5.0


class Contents:
    """The contents of a source. Files that are not in memory are hashed once, by a process that rank 0 starts.

    `source`: as the job's configuration names it. The files of a bundle are not hashed, as its name is their digest.
    """

    def __init__(self, task: Task, *, source: str, run: Run, world: World) -> None:
        self._identity, self._split_hash = task.identity, task.split_hash
        self._run, self._world = run, world
        self._hashing: _Hashing | None = None
        self._has_failed = False
        self._records: bytes | None = None
        """Those of all files. None: some are not hashed yet."""
        self._packed: Tensor | None = None
        self.data_hash: str | None = None
        """The digest of the contents. None until all files are hashed."""
        if not task.identity.files:
            self.data_hash = task.identity.digest
            self._records = records(task.identity.digests)
            self._packed = _packed(self._records)
        elif (bundle := digest_in(source)) is not None:
            self.data_hash, self._records = bundle, b""

    def check(self, state: Mapping[str, Any] | None) -> None:
        """Checks that all ranks have the same data and split, and that they are those of a checkpoint's `state`.

        A collective. Raises DataError, which names the first file that is not what it was.
        """
        ours = (self._identity.digest, self._split_hash)
        if self._world.from_rank_0(ours) != ours:
            raise DataError("the ranks read different data: is another program writing to the source?")
        if state is None:
            return
        before = _unpacked(state.get("data_files"))
        if before:
            self._hash_all(step=state["step"])
        wrong = self._world.from_rank_0(self._difference(before, state) if self._world.rank == 0 else None)
        if wrong is not None:
            raise DataError(f"{wrong} since the checkpoint was saved. Submit a new job, or restore the data")

    def __enter__(self) -> Self:
        """Hashes beside what is done in the context."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts to hash what is not hashed yet, on rank 0. Does nothing if it was started."""
        if self._world.rank or self._records is not None or self._hashing is not None:
            return
        try:
            self._hashing = _Hashing(self._identity)
        except OSError as error:
            self._run.message(f"the data was not hashed, so a resume cannot detect changes of it: {error}", "warning")

    def collect(self) -> None:
        """Takes what is hashed so far. Tells the job if no more of it will be."""
        if self._records is not None or self._hashing is None:
            return
        failure = self._hashing.failure  # before what it has written is read: all of it
        records = self._hashing.read()
        self._packed = _packed(records)
        if records.count(b"\0") == len(self._identity.files):
            self._records, self.data_hash = records, hashlib.sha256(records).hexdigest()
        elif failure is not None and not self._has_failed:
            self._has_failed = True
            self._run.message(
                f"not all of the data is hashed, so a resume may not see that it changed: {failure}", "warning"
            )

    def finish(self) -> None:
        """Waits until all files are hashed, for FINISH_S seconds at most."""
        if self._hashing is not None:
            self._hashing.wait(FINISH_S)

    def close(self) -> None:
        """Ends the process that hashes, and takes what is hashed."""
        if self._hashing is not None:
            self.collect()
            self._hashing.end()
            self.collect()
            self._hashing.close()
            self._hashing = None

    def state_dict(self) -> dict[str, Any]:
        """Returns the keys of `state.pt` that identify the data. `data_files` has the files that are hashed so far."""
        self.collect()
        return {
            "data_hash": self.data_hash,
            "data_listing": self._identity.digest,
            "data_files": self._packed,
            "split_hash": self._split_hash,
        }

    def _hash_all(self, *, step: int) -> None:
        """Hashes all files. The other ranks wait, and the service sees that the run is not stuck. A collective."""
        self.start()
        told = False
        while not self._world.from_rank_0(self._hashing is None or self._hashing.wait(_POLL_S)):
            if self._hashing is None or self._hashing.goes_on():  # a disk that hangs is a run that is stuck
                self._run.progress(step=step)
            if not told:
                self._run.message("comparing the data with the checkpoint's")
            told = True
        self.close()

    def _difference(self, before: Mapping[str, str], state: Mapping[str, Any]) -> str | None:
        """Returns how the data differs from that of a checkpoint, or None. `before`: its files that were hashed."""
        now = read_records(self._records or b"")
        if before and self._records is None:
            self._run.message("some data could not be hashed and compared with the checkpoint's", "warning")
        elif before:
            for name in sorted(before.keys() | now.keys()):
                file = Path(self._identity.root or "", name)
                if name not in now:
                    return f"{file} was removed"
                if name not in before and state["data_hash"] is not None:
                    return f"{file} was added"
                if before.get(name, now[name]) != now[name]:
                    return f"{file} has changed"
        listing = state.get("data_listing", state["data_hash"])
        if (listing, state["split_hash"]) != (self._identity.digest, self._split_hash):
            return "samples were added, removed or changed"
        return None


class _Hashing:
    """A process that hashes the files of a source. What it reads and writes are files without names."""

    def __init__(self, identity: Identity) -> None:
        root = str(identity.root)
        command = [sys.executable, "-P", "-m", "trainer.data.hashing", root, str(_cache(root)), str(os.getpid())]
        with tempfile.TemporaryFile() as names, contextlib.ExitStack() as stack:
            names.write(b"".join(os.fsencode(name) + b"\0" for name in identity.files))
            names.seek(0)
            self._records: BinaryIO = stack.enter_context(tempfile.TemporaryFile())
            self._process = subprocess.Popen(command, stdin=names, stdout=self._records)
            self._is_ended = False
            self._computed = ""
            stack.pop_all()

    def read(self) -> bytes:
        """Returns the whole records that there are."""
        descriptor = self._records.fileno()
        content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)  # the position is that of the process
        return content[: content.rfind(b"\0") + 1]

    def wait(self, seconds: float) -> bool:
        """Waits for the end of the process. Returns whether it has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def goes_on(self) -> bool:
        """Returns whether the process has computed anything since the last call."""
        try:
            computed = Path(f"/proc/{self._process.pid}/schedstat").read_text().split()[0]
        except (OSError, IndexError):  # a kernel that does not tell it
            return True
        before, self._computed = self._computed, computed
        return computed != before

    @property
    def failure(self) -> str | None:
        """Why the process has ended before it had hashed all, or None. What `end` does is no failure."""
        code = None if self._is_ended else self._process.poll()
        return f"the process that hashes it ended with {code}" if code else None

    def end(self) -> None:
        self._is_ended = True
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self._records.close()


def _cache(root: str) -> Path:
    """Returns the file for the digests of a source, in the cache of the job's owner."""
    folder = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
    return Path(os.path.expanduser(folder), "torchyard", "digests", name)  # noqa: PTH111 a user may have no home


def _packed(content: bytes) -> Tensor | None:
    """Returns records as a tensor, the form in which a state holds many bytes."""
    return torch.frombuffer(bytearray(zlib.compress(content, 1)), dtype=torch.uint8) if content else None


def _unpacked(packed: Tensor | None) -> dict[str, str]:
    return read_records(zlib.decompress(packed.numpy().tobytes())) if packed is not None else {}
