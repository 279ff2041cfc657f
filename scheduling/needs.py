"""What a job needs of a host besides devices, and which hosts have it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True, slots=True)
class Needs:
    """Equal for jobs that may start on the same hosts."""

    folders: tuple[str, ...] = ()
    """Absolute paths that its spec names by `file://`."""
    python: str | None = None
    """The environment that it names: a name, or an absolute path."""
    owner: str | None = None
    """Its owner, where a host takes jobs of some users only."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a host, or several together, have for jobs besides devices."""

    folders: frozenset[str] = frozenset()
    """Those below which jobs may name files, by absolute paths."""
    environments: frozenset[str] = frozenset()
    """Those that jobs may name, by names and by absolute paths."""

    def has_folder(self, path: str) -> bool:
        return _is_below(path, self.folders)

    def has_python(self, python: str) -> bool:
        if not python.startswith("/"):
            return python in self.environments
        return _is_below(python, self.environments | self.folders)


NO_NEEDS = Needs()
NOTHING = Offer()


def together(offers: Iterable[Offer]) -> Offer:
    """Returns what at least one host has."""
    folders, environments = set[str](), set[str]()
    for offer in offers:
        folders |= offer.folders
        environments |= offer.environments
    return Offer(frozenset(folders), frozenset(environments))


def meets(offer: Offer, needs: Needs, *, known: Offer) -> bool:
    """Returns whether a host has what a job needs.

    `known`: what all hosts have together, those that do not answer among them. What no host has is no need: the job
    starts, and its worker says what is wrong.
    """
    return all(offer.has_folder(path) or not known.has_folder(path) for path in needs.folders) and (
        needs.python is None or offer.has_python(needs.python) or not known.has_python(needs.python)
    )


def _is_below(path: str, folders: frozenset[str]) -> bool:
    return any(PurePosixPath(path).is_relative_to(folder) for folder in folders)
