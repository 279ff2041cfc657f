"""Asks git which files of a folder are its user's own, and which commit they are from."""

import os
from pathlib import Path
import subprocess

from torchyard.contract.errors import ConfigError

_OTHER_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
"""Variables that a hook has. They name the repository of the hook, and not that of the folder."""


def in_work_tree(folder: Path) -> bool:
    """Whether git keeps files of the folder. A folder that its repository ignores counts as one without git.

    Raises ConfigError if that cannot be known: files that are ignored may be private.
    """
    try:
        answer = _git(folder, "rev-parse", "--is-inside-work-tree")
    except FileNotFoundError:
        if any((parent / ".git").exists() for parent in (folder, *folder.parents)):
            raise ConfigError(f"{folder} is in a git repository: install git, which knows what is ignored") from None
        return False
    if answer.returncode and b"not a git repository" not in answer.stderr:
        raise ConfigError(f"git cannot read {folder}: {_said(answer)}")
    ignored = b"true" in answer.stdout and _git(folder, "check-ignore", "--quiet", ".").returncode == 0
    return b"true" in answer.stdout and not ignored


def tracked(folder: Path) -> set[str]:
    """Returns the files in the index, relative to the folder. Some may have been deleted. Raises ConfigError."""
    return _names(folder, "--cached")


def untracked(folder: Path) -> set[str]:
    """Returns the files that are neither in the index nor ignored. The name of a repository inside ends in a slash.

    Raises ConfigError.
    """
    return _names(folder, "--others", "--exclude-standard")


def labels(folder: Path) -> dict[str, str]:
    """Returns `git.commit`, `git.branch` and `git.dirty` as labels of a job; none where there is no commit."""
    try:
        commit = _git(folder, "rev-parse", "--verify", "HEAD")
        branch = _git(folder, "symbolic-ref", "--quiet", "--short", "HEAD")
        changes = _git(folder, "status", "--porcelain", "-z")
    except FileNotFoundError:
        return {}
    if commit.returncode or changes.returncode:
        return {}
    found = {"git.commit": _text(commit), "git.branch": _text(branch)[:200]}
    return {**{key: value for key, value in found.items() if value}, "git.dirty": str(bool(changes.stdout)).lower()}


def _names(folder: Path, *options: str) -> set[str]:
    answer = _git(folder, "ls-files", "-z", *options)
    if answer.returncode:
        raise ConfigError(f"git cannot list the files of {folder}: {_said(answer)}")
    return {os.fsdecode(name) for name in answer.stdout.split(b"\0") if name}


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Runs git, which starts no program that the folder's configuration names. Raises FileNotFoundError."""
    environment = {name: value for name, value in os.environ.items() if name not in _OTHER_REPOSITORY}
    return subprocess.run(
        ["git", "-c", "core.fsmonitor=false", *arguments],  # noqa: S607 - the user's own git
        cwd=folder,
        env={**environment, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )


def _text(answer: subprocess.CompletedProcess[bytes]) -> str:
    return answer.stdout.decode(errors="replace").strip()


def _said(answer: subprocess.CompletedProcess[bytes]) -> str:
    return answer.stderr.decode(errors="replace").strip()
