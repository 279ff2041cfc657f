"""Copies the checkpoints that an attempt has published in its run directory, and lists them.

Those of one that publishes very many are spaced: each is copied and leaves a row for ever.
"""

from collections.abc import Iterable
import time

from store.worker.records import Batch, Blob, BlobStore, NewCheckpoint, RefusedBlob
from torchyard.contract.attempts.events import CheckpointSaved
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.errors import DataError
from worker.attempts.files.copying import CheckpointCopy, Copy
from worker.attempts.output.warnings import warn
from worker.host.mask import Mask
from worker.host.untrusted import folders_inside

MOST_FOLDERS = 50_000
REFUSED_COST = 8 << 20
"""What is wrong with a checkpoint counts as copying so many bytes: to parse its manifest may take another process
half a second."""
MOST_UNANNOUNCED = 1000
"""Folders in `checkpoints` without an event line that are looked at."""
_SPACE_S = 60.0
_DESCRIPTION = 1 << 12
"""Bytes of manifests that count as one checkpoint."""
_LONG_DESCRIPTION = 1 << 14
"""Bytes of a manifest. After one of twice as many the next checkpoint may come after two minutes, and so on."""


class Publishing:
    """The checkpoints of one attempt. `known`: the names of those that are listed, or are never to be.

    Beyond `most` checkpoints one a minute is listed. `limit`: the most bytes of one. `mask`: what no name of a file may
    have. Each method adds to `copied` the copies that are complete, whose rows are in the batch.
    """

    def __init__(
        self, run: RunDir, blobs: BlobStore, *, known: set[str], limit: int, most: int | None, mask: Mask
    ) -> None:
        self.known = known
        self._run = run
        self._blobs = blobs
        self._limit = limit
        self._mask = mask
        self._spacing = Spacing(most)
        self._unannounced = MOST_UNANNOUNCED
        self._saved_at = 0
        """When the newest was saved, in nanoseconds."""
        self._refused: dict[str, str] = {}
        """Why checkpoints are not listed that were sent and refused, by name."""
        self._copy: CheckpointCopy | None = None
        """The unfinished copy. The line that announces its checkpoint waits, and so do the lines behind it."""

    @property
    def copying(self) -> bool:
        """Whether a copy is unfinished."""
        return self._copy is not None

    def add(
        self,
        name: str,
        batch: Batch,
        copied: list[Copy],
        *,
        budget: int,
        one_a_minute: bool = True,
    ) -> int:
        """Copies at most `budget` bytes of the checkpoint. Returns what is left of the budget. Raises OSError.

        `one_a_minute`: whether it is left out if the attempt has too many, and one was listed within a minute.
        """
        if name in self.known or any(new.name == name for new in batch.checkpoints):
            return budget
        begun = self._copy is not None and self._copy.name == name
        count = len(self.known) + len(batch.checkpoints)
        if one_a_minute and not begun and self._spacing.leaves_out(name, count=count):
            if (text := self._spacing.notice()) is not None:
                warn(batch, text)
            return budget
        if self._copy is not None and self._copy.name != name:  # the job has rewritten its event log
            self.discard()
        try:
            if (why := self._refused.pop(name, None)) is not None:
                raise DataError(why)
            copy = self._copy = self._copy or self._begin(name)
            budget = copy.copy_some(budget)
        except DataError as error:
            self.discard()
            self.known.add(name)
            warn(batch, f"checkpoint {name} is not listed: {error.message}")
            return max(0, budget - REFUSED_COST)
        except OSError:
            self.discard()
            raise
        if budget:
            # In the order in which they were saved, also within one tick of the file system's clock.
            self._saved_at = copy.saved_at = max(copy.saved_at, self._saved_at + 1)
            batch.checkpoints.append(copy.checkpoint)
            copied.append(copy)
            self._copy = None
        return budget

    def add_unannounced(self, batch: Batch, copied: list[Copy], *, budget: int) -> None:
        """Adds checkpoints without an event line: the process ended before it could write the line. Raises OSError."""
        if self._spacing.is_over(len(self.known)):
            if self._spacing.newest is not None:
                self.add(self._spacing.newest, batch, copied, budget=budget, one_a_minute=False)
            return
        for name in folders_inside(self._run.job, self._run.checkpoints.name, most=MOST_FOLDERS):
            if name in self.known or name.startswith("."):
                continue
            if not self._unannounced:
                return
            if self._copy is None:
                self._unannounced -= 1
            if not _is_checkpoint_name(name):
                self.known.add(name)
                warn(batch, f"checkpoint {name!r} is not listed: its name is not a valid checkpoint name")
                continue
            budget = self.add(name, batch, copied, budget=budget)
            if self.copying or not budget:
                return

    def refuse(self, checkpoints: Iterable[NewCheckpoint], refused: RefusedBlob) -> None:
        """Has those of the checkpoints that have the file be listed no more. The next `add` says why."""
        for new in [new for new in checkpoints if new.source is None]:
            for path in [file.path for file in new.files if Blob(file.sha256, file.size) == refused.blob][:1]:
                self._refused[new.name] = f"its file {path} does not match its manifest: {refused.message}"

    def discard(self) -> None:
        """Discards an unfinished copy. Raises OSError."""
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.discard()

    def _begin(self, name: str) -> CheckpointCopy:
        copy = CheckpointCopy(self._run, self._blobs, name, limit=self._limit)
        self._spacing.begin(copy.described)
        if any(map(self._mask.finds, [name, *(file.path for file in copy.checkpoint.files)])):
            copy.discard()
            raise DataError("its name, or that of one of its files, has the value of a secret")
        return copy


class Spacing:
    """Says which checkpoints are left out. `most`: after how many; None for never."""

    def __init__(self, most: int | None) -> None:
        self.newest: str | None = None
        """The newest that was left out. It is stored at the end of the attempt."""
        self.began = False
        """Whether one was left out."""
        self._most = most
        self._next = 0.0
        self._described = 0

    def is_over(self, count: int) -> bool:
        """Returns whether an attempt with so many checkpoints has more than are stored at will."""
        return self._most is not None and max(count, self._described // _DESCRIPTION) >= self._most

    def leaves_out(self, name: str, *, count: int) -> bool:
        """Returns whether a checkpoint is left out, as the last one was stored within a minute."""
        if not self.is_over(count):
            return False
        if time.monotonic() >= self._next:
            self.newest = None
            self._wait(1)  # also if it turns out to be none
            return False
        self.newest = name
        return True

    def begin(self, described: int) -> None:
        """Counts a checkpoint that is copied now. `described`: the bytes of its manifest, which its row has."""
        self._described += described
        self._wait(max(1, described // _LONG_DESCRIPTION))

    def notice(self) -> str | None:
        """Returns what to tell the owner, when the first is left out."""
        if self.began:
            return None
        self.began = True
        return (
            f"the attempt has published {self._most} checkpoints (TORCHYARD_MAX_CHECKPOINTS of the worker): from now on"
            " one a minute is stored, and the last one"
        )

    def _wait(self, spaces: int) -> None:
        self._next = max(self._next, time.monotonic() + spaces * _SPACE_S)


def _is_checkpoint_name(text: str) -> bool:
    try:
        CheckpointSaved(time=0, name=text)
    except ValueError:
        return False
    return True
