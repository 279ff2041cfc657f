"""Puts back what earlier attempts of a job wrote and the service has stored, where nothing of it lies on this host.

Nothing that a job could have changed is written into: the folders are new, and no process of the job runs.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
import errno
import hashlib
import os
from pathlib import Path
import shutil
from typing import Literal, get_args
import uuid

from store.worker.records import CAPTURED, ArtifactFacts, BlobStore, CheckpointFacts, captured_file, captured_number
from torchyard.contract.attempts.rundir import WORK, RunDir
from torchyard.contract.wire.text import printable
from torchyard.host import disk, terminal
from worker.host.looks import Parts
from worker.host.untrusted import remove_briefly

Root = Literal["work", "artifacts"]
Placed = dict[tuple[int, int, int, str], tuple[Path, int]]
_ARTIFACTS = "artifacts"
_KEPT_FREE = 64 << 20
"""Bytes of the disk that files which are no checkpoints leave free."""
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class StoredFile:
    path: str
    sha256: str
    size: int
    modified_ns: int


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A version of a file, or of a folder that is one checkpoint, that is stored."""

    root: Root
    """Below which folder of the job it belongs."""
    path: str
    files: Sequence[StoredFile]
    """It alone, or all files of the folder. Empty: it is too old to be put back among very many."""
    order: tuple[int, int, int, str]
    """The newest version has the greatest. It begins with 0 for those of the job that is retried."""
    is_checkpoint: bool

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass
class Restored:
    """What was put back, and what was not."""

    checkpoints: int = 0
    files: int = 0
    size: int = 0
    left_out: list[str] = field(default_factory=list[str])
    placed: Placed = field(default_factory=Placed)
    """By checkpoint of one file: where it lies, and its inode. Its other names are links to it."""

    def message(self, *, of: str) -> str:
        """Returns what to tell the job's owner; empty if there was nothing. `of`: the attempt or job it is from."""
        counts = [(self.checkpoints, "checkpoint"), (self.files, "file")]
        parts = " and ".join(f"{count} {name}{'s' if count > 1 else ''}" for count, name in counts if count)
        named = ", ".join(self.left_out[:_MOST_NAMED])
        more = len(self.left_out) - _MOST_NAMED
        rest = f"not put back: {named}" + (f", and {more} more" if more > 0 else "") if self.left_out else ""
        restored = f"restored {parts} ({terminal.size(self.size)}) of {of}" if parts else ""
        return "; ".join(part for part in (restored, rest) if part)


def stored_of(
    checkpoints: Sequence[CheckpointFacts], artifacts: Sequence[ArtifactFacts], *, of_retried: bool = False
) -> list[Stored]:
    """Returns what is stored whole of one job. `of_retried`: of the one that the job retries."""
    listed = [each for each in checkpoints if each.files or each.files_omitted]
    whole = [each for each in listed if each.source == CAPTURED and not each.damaged]
    generation = 0 if of_retried else 1
    return [
        *(stored for each in whole for stored in _of_checkpoint(each, generation)),
        *(_of_artifact(each, generation) for each in artifacts),
    ]


def versions_of(stored: Sequence[Stored]) -> list[list[Stored]]:
    """Returns the versions of each file, its newest one first; checkpoints before other files."""
    by_path: dict[tuple[Root, str], list[Stored]] = {}
    for each in sorted(stored, key=_order, reverse=True):
        if all(is_path(file.path) for file in each.files):
            by_path.setdefault((each.root, each.path), []).append(each)
    return sorted(by_path.values(), key=lambda versions: not versions[0].is_checkpoint)


def restore(
    versions: Sequence[Sequence[Stored]],
    *,
    folders: dict[Root, Path],
    blobs: BlobStore,
    check: Callable[[], object] = lambda: None,
) -> Restored:
    """Puts the newest whole version of each file back at its own path, with its time. `folders`: where, by place.

    Raises OSError, also if a disk has no room for the checkpoints, and what `check` raises.
    """
    restored = Restored()
    here = [each for each in versions if each[0].root in folders]
    for folder in folders.values():
        disk.require_free_space(folder.parent, needed_for(here))
    for each in here:
        check()
        _put_back(each, folders[each[0].root], blobs, restored, check)
    return restored


@contextmanager
def fetched(
    files: Sequence[StoredFile], folder: Path, *, prefix: str, blobs: BlobStore, check: Callable[[], object]
) -> Generator[Path | None]:
    """Yields a new place in the folder with a stored version, to be renamed. None: a file is missing or damaged.

    It has the files at their paths, with their times; it is the file itself if that has an empty path. What is not
    renamed is removed at the end. `prefix`: that of the name of the place. Raises OSError, and what `check` raises.
    """
    temporary = folder / f"{prefix}{uuid.uuid4().hex}"
    try:
        for file in files:
            copy = temporary / file.path
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not blobs.copy_out(file.sha256, copy, check=check):
                yield None
                return
            os.utime(copy, ns=(file.modified_ns, file.modified_ns))
        yield temporary
    finally:
        remove_briefly(folder, temporary.name)  # a cancel may wait; the next attempt removes the rest


def needed_for(versions: Sequence[Sequence[Stored]]) -> int:
    """Returns the bytes of the checkpoints, without which the job has to wait. One of several names counts once."""
    newest = {each[0].order: each[0].size for each in versions if each[0].is_checkpoint}
    return sum(newest.values())


def _put_back(
    versions: Sequence[Stored], folder: Path, blobs: BlobStore, restored: Restored, check: Callable[[], object]
) -> None:
    newest = versions[0]
    if not newest.files:
        restored.left_out.append(f"checkpoint {newest.path} (older ones have many files)")
        return
    if not newest.is_checkpoint and shutil.disk_usage(folder).free < newest.size + _KEPT_FREE:
        restored.left_out.append(f"{_shown(newest)} ({terminal.size(newest.size)}: the disk has no room)")
        return
    for each in versions:
        try:
            whole = _put(each, folder, blobs, restored.placed, check)
        except OSError as error:
            if error.errno not in {errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG}:
                raise
            break
        if whole:
            restored.checkpoints += each.is_checkpoint
            restored.files += not each.is_checkpoint
            restored.size += each.size
            return
    restored.left_out.append(_shown(newest))


def _put(stored: Stored, folder: Path, blobs: BlobStore, placed: Placed, check: Callable[[], object]) -> bool:
    """Returns False if the stored version is not whole: nothing of it is put back then."""
    own = folder / stored.path
    link = folder / f".{uuid.uuid4().hex}"
    if stored.order in placed and _is_linked(placed[stored.order], link):
        try:
            _rename(link, own, own=own)
        finally:
            link.unlink(missing_ok=True)
        return True
    copies = {str(number): file for number, file in enumerate(stored.files)}
    files = [replace(file, path=name) for name, file in copies.items()]
    with fetched(files, folder, prefix=".", blobs=blobs, check=check) as staged:
        if staged is None:
            return False
        for name, file in copies.items():
            _rename(staged / name, folder / file.path, own=own)
    if stored.is_checkpoint and len(stored.files) == 1:
        target = folder / stored.files[0].path
        placed.setdefault(stored.order, (target, target.stat().st_ino))
    return True


def _rename(copy: Path, target: Path, *, own: Path) -> None:
    if target.parent == own.parent and target != own and target.exists():
        return  # it lies beside its folder, and that of a newer one has been put back
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    copy.rename(target)


def _is_linked(source: tuple[Path, int], other: Path) -> bool:
    """Makes the file's other name. Returns False if its disk has no links, or another file lies in its place now."""
    path, inode = source
    try:
        os.link(path, other)
    except OSError:
        return False
    if other.stat().st_ino == inode:
        return True
    other.unlink()
    return False


def _order(stored: Stored) -> tuple[int, int, int, str]:
    return stored.order


def _of_checkpoint(checkpoint: CheckpointFacts, generation: int) -> list[Stored]:
    """Returns the version under its own path, and that of a file with several names under each of the others, too."""
    stored = _under_its_path(checkpoint, generation)
    if not stored.files:
        return [stored]
    links = checkpoint.files[0].get("links", ()) if len(checkpoint.files) == 1 else ()
    file = stored.files[0]
    return [stored, *(replace(stored, path=link, files=[replace(file, path=link)]) for link in links)]


def _under_its_path(checkpoint: CheckpointFacts, generation: int) -> Stored:
    if not checkpoint.files:
        return _of_folder(checkpoint, generation, root="work", path=checkpoint.id)
    for root in get_args(Root):
        if (folder := path_of(root, checkpoint)) is not None:
            return _of_folder(checkpoint, generation, root=root, path="/".join(folder))
    _, digest, modified, *_ = (*checkpoint.name.split("-"), "", "", "")
    paths = [str(file["path"]) for file in checkpoint.files]
    root, path = _root_of(paths[0] if len(paths) == 1 else os.path.commonpath(paths), digest)
    prefix = f"{_ARTIFACTS}/" if root == "artifacts" else ""
    modified_ns = _hexadecimal(modified) or checkpoint.saved_at
    return Stored(
        root=root,
        path=path,
        files=[
            StoredFile(str(file["path"]).removeprefix(prefix), file["sha256"], file["size"], modified_ns)
            for file in checkpoint.files
        ],
        order=(generation, checkpoint.attempt, checkpoint.saved_at, checkpoint.id),
        is_checkpoint=True,
    )


def _of_folder(checkpoint: CheckpointFacts, generation: int, *, root: Root, path: str) -> Stored:
    return Stored(
        root=root,
        path=path,
        files=[
            StoredFile(file["path"], file["sha256"], file["size"], file["modified_ns"]) for file in checkpoint.files
        ],
        order=(generation, checkpoint.attempt, checkpoint.saved_at, checkpoint.id),
        is_checkpoint=True,
    )


def _of_artifact(artifact: ArtifactFacts, generation: int) -> Stored:
    saved_ns = artifact.created_at * 1000 if artifact.modified_ns is None else artifact.modified_ns
    return Stored(
        root="work" if artifact.kept else "artifacts",
        path=artifact.path,
        files=[StoredFile(artifact.path, artifact.sha256, artifact.size, saved_ns)],
        order=(generation, artifact.attempt, saved_ns, artifact.id),
        is_checkpoint=False,
    )


def _root_of(path: str, digest: str) -> tuple[Root, str]:
    """Returns where a captured file lay. The digest in the checkpoint's name is that of its path below the run."""
    below = path.removeprefix(f"{_ARTIFACTS}/")
    if digest == _digest(f"{WORK}/{path}") or (below == path and digest != _digest(f"{_ARTIFACTS}/{path}")):
        return "work", path
    return "artifacts", below


def _digest(path: str) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]


def _hexadecimal(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return 0


def path_of(root: str, checkpoint: CheckpointFacts) -> Parts | None:
    """Returns a captured folder's path below its root; None if it lies below another one, or is no folder.

    The name of the checkpoint has the digest of the path. Not all files need lie in the folder.
    """
    if captured_number(checkpoint.name) is None:
        return None
    for file in checkpoint.files:
        names = file["path"].split("/") if file.get("root", WORK) == root else []
        for end in range(1, len(names)):
            path = "/".join((root, *names[:end]))
            if hashlib.sha256(os.fsencode(path)).hexdigest()[:12] == captured_file(checkpoint.name):
                return tuple(names[:end])
    return None


def is_path(text: str) -> bool:
    return not {"", ".", ".."} & {*text.split("/")} and "\0" not in text


def _shown(stored: Stored) -> str:
    return printable(stored.path)[-100:]


def folders_of(run: RunDir, *, work: Path | None, artifacts: bool) -> dict[Root, Path]:
    """Returns where to put files back: into a new working folder, and into the attempt's empty `artifacts`."""
    folders: dict[Root, Path] = {} if work is None else {"work": work}
    return {**folders, "artifacts": run.artifacts} if artifacts else folders
