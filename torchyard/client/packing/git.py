"""Asks git which files of a folder are its user's own, and which commit they are from."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
import os
from pathlib import Path
import re
import shutil
import subprocess
import tempfile
import threading
from types import MappingProxyType
from typing import TYPE_CHECKING

from torchyard.contract.bounds import MOST_DIFF_BYTES
from torchyard.contract.errors import ConfigError
from torchyard.contract.wire.text import storable

if TYPE_CHECKING:
    from torchyard.contract.recipes.script import Git

MOST_S = 120.0
"""Of one command of git."""
_OTHER_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
"""Variables that a hook has. They name the repository of the hook, and not that of the folder."""
_DIFF = ("--relative", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv")
_SAFE = ("-c", "core.fsmonitor=false", "-c", "safe.bareRepository=explicit")
"""A repository among the files of another one, which a clone may bring with a configuration of its own, is not used."""
_NO_FETCH = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
"""A repository that lacks objects may name a program that brings them. Only newer versions of git know the second."""
_FILTERS = r"^filter\..*\.(clean|process)$"
_SUBMODULE = b"160000 "
"""What an entry of an index begins with that is the commit of another repository."""
_ITS_OWN = frozenset({"local", "worktree"})
"""The scopes of a configuration that came with the folder, perhaps. Others are the user's and the machine's."""
_MOST_NAMES = 1000
"""The most files of a diff: their names are arguments of git."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""Characters that JSON writes with six bytes, and that no text needs."""
_CUT = b"\n(the diff is longer)\n"


def in_work_tree(folder: Path) -> bool:
    """Whether git keeps files of the folder. A folder that its repository ignores counts as one without git.

    Raises ConfigError if that cannot be known: files that are ignored may be private.
    """
    try:
        answer = _git(folder, "rev-parse", "--is-inside-work-tree", "--show-prefix")
    except FileNotFoundError:
        if any((parent / ".git").exists() for parent in (folder, *folder.parents)):
            raise ConfigError(f"{folder} is in a git repository: install git, which knows what is ignored") from None
        return False
    if answer.returncode and b"not a git repository" not in answer.stderr:
        raise ConfigError(f"git cannot read {folder}: {_said(answer)}")
    inside, _, prefix = answer.stdout.partition(b"\n")
    if inside != b"true":
        return False
    # Of the top folder git says that `*` ignores it, though a line after that brings its files back.
    return not prefix.strip() or _git(folder, "check-ignore", "--quiet", ".").returncode != 0


def tracked(folder: Path) -> set[str]:
    """Returns the files in the index, relative to the folder. Some may have been deleted. Raises ConfigError."""
    return _names(folder, "--cached")


def untracked(folder: Path) -> set[str]:
    """Returns the files that are neither in the index nor ignored. The name of a repository inside ends in a slash.

    Raises ConfigError.
    """
    return _names(folder, "--others", "--exclude-standard")


def ignored(folder: Path) -> list[str]:
    """Returns what is ignored, relative to the folder. A folder of which all is ignored ends in a slash, and stands for
    what is below it.

    Raises ConfigError.
    """
    kept: list[str] = []
    for name in sorted(_names(folder, "--others", "--ignored", "--exclude-standard", "--directory") - {"./"}):
        if not (kept and kept[-1].endswith("/") and name.startswith(kept[-1])):
            kept.append(name)
    return kept


def origin(folder: Path, packed: Collection[str]) -> Git | None:
    """Returns the commit and the branch of the folder, and how the files in it differ: None without a commit.

    The diff is one of the files that are `packed`: what is left out of the bundle is not told in another way.
    """
    try:
        commit = _git(folder, "rev-parse", "--verify", "HEAD")
        branch = _git(folder, "symbolic-ref", "--quiet", "--short", "HEAD")
        safe = _without_filters(folder)
        changes = _git(folder, *safe, "status", "--porcelain", "-z", "--", ".")
    except FileNotFoundError:
        return None
    if commit.returncode or changes.returncode:
        return None
    from torchyard.contract.recipes.script import Git

    dirty = bool(changes.stdout)
    diff = _diff(folder, packed, safe) if dirty else ""
    return Git(commit=_text(commit), branch=_text(branch)[:500] or None, dirty=dirty, diff=diff)


def _diff(folder: Path, packed: Collection[str], safe: Sequence[str]) -> str:
    """Returns how what is packed differs from the commit: first of files that it has, then of new ones, then of the
    submodules. Of what is gone it has the names. Cut off if it is long.
    """
    found = b""
    for part in _parts_of_diff(folder, packed, safe, base="HEAD", prefix=""):
        found += part
        if len(found) > MOST_DIFF_BYTES:
            break
    return _bounded(storable(_CONTROL.sub("\ufffd", found.decode(errors="replace"))))


def _parts_of_diff(
    folder: Path, packed: Collection[str], safe: Sequence[str], *, base: str, prefix: str
) -> Iterator[bytes]:
    """Yields parts of the diff of a repository below the folder that is packed, against one of its commits.

    `prefix`: its path there, with a slash at its end, if it is a submodule.
    """
    own = {name.removeprefix(prefix) for name in packed if name.startswith(prefix)}
    known, new = tracked(folder), sorted(untracked(folder) & own)
    inner = [name for name, _ in _links(folder) if any(each.startswith(f"{name}/") for each in own)]
    with _index_with(folder, new, safe) as index:
        options = (
            *safe,
            "--literal-pathspecs",
            *_diff_of(base),
            f"--src-prefix=a/{prefix}",
            f"--dst-prefix=b/{prefix}",
        )
        changed = _git(folder, *safe, *_diff_of(base), "--name-only", "-z", "--", ".", index=index).stdout.split(b"\0")
        names = [
            name
            for name in map(os.fsdecode, filter(None, changed))
            if name in own or name in inner or name not in known or not os.path.lexists(folder / name)
        ]
        for some in ([name for name in names if name not in new], [name for name in names if name in new]):
            if some:
                arguments = (*options, "--irreversible-delete", "--", *some[:_MOST_NAMES])
                with _running(folder, *arguments, stderr=subprocess.DEVNULL, index=index) as process:
                    assert process.stdout is not None
                    yield process.stdout.read(MOST_DIFF_BYTES + 1)
                    process.kill()
    for name in inner:
        recorded = _git(folder, "ls-tree", "-z", base, "--", name).stdout.split()
        if len(recorded) > 2 and (folder / name / ".git").exists():
            commit = os.fsdecode(recorded[2])
            yield from _parts_of_diff(folder / name, packed, safe, base=commit, prefix=f"{prefix}{name}/")


def _diff_of(base: str) -> tuple[str, ...]:
    return ("diff", base, *_DIFF)


@contextmanager
def _index_with(folder: Path, names: Sequence[str], safe: Sequence[str]) -> Generator[Mapping[str, str]]:
    """Yields variables with which git takes new files for known ones. The repository stays as it is."""
    paths = _git(folder, "rev-parse", "--git-path", "index", "--git-path", "objects").stdout.decode(
        errors="surrogateescape"
    )
    index, objects, *_ = (folder / line for line in [*paths.splitlines(), "", ""])
    with tempfile.TemporaryDirectory(prefix="torchyard-git-") as own:
        copy = Path(own, "index")
        if index.is_file():
            shutil.copy2(index, copy)  # by its time git knows which files may have changed in that moment
        variables = {
            "GIT_INDEX_FILE": str(copy),
            "GIT_OBJECT_DIRECTORY": own,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{objects}"' if ":" in str(objects) else str(objects),
        }
        if names:
            options = ("--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul")
            _git(
                folder,
                "--literal-pathspecs",
                "add",
                *options,
                index=variables,
                given=b"\0".join(map(os.fsencode, names)),
            )
        yield variables


def _bounded(text: str) -> str:
    encoded = text.encode()
    if len(encoded) <= MOST_DIFF_BYTES:
        return text
    whole, _, _ = encoded[: MOST_DIFF_BYTES - len(_CUT)].rpartition(b"\n")
    return (whole + _CUT).decode(errors="ignore")


def _names(folder: Path, *options: str) -> set[str]:
    answer = _git(folder, "ls-files", "-z", *options)
    if answer.returncode:
        raise ConfigError(f"git cannot list the files of {folder}: {_said(answer)}")
    return {os.fsdecode(name) for name in answer.stdout.split(b"\0") if name}


def _git(
    folder: Path, *arguments: str, index: Mapping[str, str] = MappingProxyType({}), given: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs git, which starts no program that the folder's configuration names. `given`: what it reads.

    Raises FileNotFoundError, and ConfigError if it does not end.
    """
    with _running(folder, *arguments, index=index, reads=given is not None) as process:
        stdout, stderr = process.communicate(given)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def _without_filters(folder: Path) -> list[str]:
    """Returns options with which git runs none of the programs that the folder's own configuration has as filters.

    Nor those of its submodules: git asks each for its status, with these options.
    """
    names = set[str]().union(*(_filters_of(each) for each in (folder, *_submodules(folder))))
    if any("=" in name for name in names):
        raise ConfigError(f"git's configuration of {folder} names a filter with `=` in its name: rename it")
    options = (f"{name}.{key}" for name in sorted(names) for key in ("clean=", "process=", "required=false"))
    return [part for option in options for part in ("-c", option)]


def _filters_of(folder: Path) -> set[str]:
    """Returns the filters that the folder's own configuration has."""
    answer = _git(folder, "config", "--includes", "--null", "--show-scope", "--name-only", "--get-regexp", _FILTERS)
    said = [os.fsdecode(part) for part in answer.stdout.split(b"\0")]
    return {name.rpartition(".")[0] for scope, name in zip(said[::2], said[1::2], strict=False) if scope in _ITS_OWN}


def _submodules(folder: Path) -> Iterator[Path]:
    """Yields the checked-out submodules of the folder, at any depth."""
    root = Path(os.fsdecode(_git(folder, "rev-parse", "--show-toplevel").stdout.removesuffix(b"\n")))
    waiting = [root]
    while waiting:
        inside = waiting.pop()
        for _, path in _links(inside):
            if (path / ".git").exists():
                waiting.append(path)
                yield path


def _links(folder: Path) -> list[tuple[str, Path]]:
    """Returns the names and paths of the submodules in the index of a folder."""
    entries = (entry.partition(b"\t") for entry in _git(folder, "ls-files", "--stage", "-z").stdout.split(b"\0"))
    names = [os.fsdecode(name) for about, _, name in entries if about.startswith(_SUBMODULE)]
    return [(name, folder / name) for name in names]


@contextmanager
def _running(
    folder: Path,
    *arguments: str,
    stderr: int = subprocess.PIPE,
    index: Mapping[str, str] = MappingProxyType({}),
    reads: bool = False,
) -> Generator[subprocess.Popen[bytes]]:
    """Runs git during the block. Raises ConfigError if it had to be ended: it waits without end for a pipe."""
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    with _started(folder, *arguments, stderr=stderr, index=index, reads=reads) as process:
        timer = threading.Timer(MOST_S, end)
        timer.daemon = True
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
    if late.is_set():
        raise ConfigError(
            f"git did not end in {MOST_S:g} s in {folder}: is a .gitignore there, or a file that"
            " its configuration includes, a pipe or a device?"
        )


def _started(
    folder: Path, *arguments: str, stderr: int, index: Mapping[str, str], reads: bool
) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if name not in _OTHER_REPOSITORY}
    return subprocess.Popen(
        ["git", *_SAFE, *arguments],  # noqa: S607 - the user's own git
        cwd=folder,
        env={**environment, **_NO_FETCH, **index, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"},
        stdin=subprocess.PIPE if reads else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
    )


def _text(answer: subprocess.CompletedProcess[bytes]) -> str:
    return answer.stdout.decode(errors="replace").strip()


def _said(answer: subprocess.CompletedProcess[bytes]) -> str:
    return answer.stderr.decode(errors="replace").strip()
