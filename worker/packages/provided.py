"""Which packages of the worker a job takes: torch, and what fits one version of it, where they are what it asks for.

Who wrote the requirements may be hostile, so they are parsed where `reading` is confined.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

_PARTS = ("torch", "torchvision", "torchaudio")
"""Packages that are made for one version of torch: of these, all are the worker's, or none is."""


@dataclass(frozen=True)
class Provided:
    """What is the worker's. `notes`: what is not what the job asks for, by name and both versions."""

    names: Sequence[str]
    own_torch: bool = False
    """Whether torch is installed for the job, as the worker's is not what it asks for."""
    notes: Sequence[str] = ()


@dataclass
class Wishes:
    """Collects what requirements say of the worker's packages, whose `versions` are known."""

    versions: Mapping[str, str]
    asked: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The requirements of each of them, as they are written."""
    limited: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """What constraints say of them."""

    def note(self, line: str, *, constrains: bool = False) -> None:
        """Notes a line of a requirements file, if it is about one of them."""
        parsed = _parsed(line)
        name = "" if parsed is None else canonicalize_name(parsed.name)
        if parsed is not None and (name in self.versions or name in _PARTS) and _applies(parsed):
            (self.limited if constrains else self.asked).setdefault(name, []).append(line)

    def decide(self) -> Provided:
        """Returns which of the packages are the worker's."""
        parts = [name for name in self.asked if name in _PARTS and not self._fits(name)]
        if parts:
            notes = [f"{self._differs(name)}: torch and its packages are installed" for name in sorted(parts)]
            return Provided([], own_torch=True, notes=notes)
        others = [name for name in self.asked if name not in _PARTS and not self._fits(name)]
        notes = [f"{self._differs(name)}: the worker's is used, as its torch needs it" for name in sorted(others)]
        return Provided(sorted(self.versions), notes=notes)

    def _fits(self, name: str) -> bool:
        lines = [*self.asked.get(name, []), *self.limited.get(name, [])]
        return name in self.versions and all(fits(line, self.versions[name]) for line in lines)

    def _differs(self, name: str) -> str:
        lines = [*self.asked.get(name, []), *self.limited.get(name, [])]
        if name not in self.versions:
            return f"the worker has no {name}"
        wanted = next(line for line in lines if not fits(line, self.versions[name]))
        return f"{wanted[:100]} is not the worker's {name} {self.versions[name]}"


def fits(line: str, version: str) -> bool:
    """Returns whether a version is what a requirement asks for. Its local part, as `+cu130`, counts where it asks."""
    parsed = _parsed(line)
    if parsed is None or parsed.url is not None:
        return False
    try:
        known = Version(version)
    except InvalidVersion:
        return False
    return parsed.specifier.contains(known, prereleases=True)


def overridden(metadata: str, versions: Mapping[str, str]) -> list[str]:
    """Returns what an installed package asks of the worker's packages and does not get. `metadata`: its METADATA."""
    head = metadata.partition("\n\n")[0].splitlines()
    fields = {name: value for name, _, value in (line.partition(": ") for line in reversed(head))}
    asked = [line.partition(": ")[2] for line in head if line.startswith("Requires-Dist: ")]
    return [
        f"{fields.get('Name')} {fields.get('Version')} asks for {line.partition(';')[0].strip()[:100]},"
        f" and gets the worker's {versions[name]}"
        for line, name in _named(asked)
        if name in versions and not fits(line, versions[name])
    ]


def _named(asked: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line in asked:
        parsed = _parsed(line)
        if parsed is not None and _applies(parsed):
            yield line, canonicalize_name(parsed.name)


def python_fits(specifier: str, version: str) -> bool:
    """Returns whether a `requires-python` allows a version of Python; also if it says nothing that can be read."""
    try:
        return Requirement(f"python {specifier}").specifier.contains(version, prereleases=True)
    except InvalidRequirement:
        return True


def _parsed(line: str) -> Requirement | None:
    try:
        return Requirement(line.partition(" --")[0].strip())
    except InvalidRequirement:
        return None


def _applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})
