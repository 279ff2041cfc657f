"""The environments that a worker offers: those that its operator names, and any below a folder that jobs may name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
import os
from pathlib import Path
import time

from torchyard.contract.cluster.devices import EnvironmentReport
from torchyard.contract.errors import ConfigError
from torchyard.host.datadir import folder_on_the_way
from worker.environments.environment import Environment, lies_in, looks_like_one, read

MOST_LISTED = 100
_LISTED_FOR_S = 300.0
_SHOWN = 10


def parse(text: str) -> tuple[Path, ...]:
    """Returns the folders of a setting, `DIR:DIR`."""
    return tuple(dict.fromkeys(Path(part) for part in text.split(os.pathsep) if part))


def folders_of(roots: Sequence[Path]) -> Iterator[Path]:
    """Yields the environments among the folders, and those that lie in one of them."""
    for root in roots:
        if looks_like_one(root):
            yield root
            continue
        try:
            inside = sorted(root.iterdir())
        except OSError:
            continue
        yield from (folder for folder in inside if looks_like_one(folder) and lies_in(folder, root))


@dataclass(frozen=True, kw_only=True)
class Environments:
    """`roots`: what the operator names. `allowed`: the folders below which jobs may name files."""

    roots: tuple[Path, ...] = ()
    allowed: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    """Folders that jobs may write."""
    data_dir: Path = Path("/nonexistent")
    protects: bool = True
    """Whether the isolation keeps jobs from writing what is not theirs."""
    _listed: list[tuple[float, list[EnvironmentReport]]] = field(
        default_factory=list[tuple[float, list[EnvironmentReport]]], compare=False
    )

    def reports(self) -> list[EnvironmentReport]:
        """Returns what the operator names, as it was some minutes ago at most."""
        if not self.roots:
            return []
        if not self._listed or time.monotonic() - self._listed[-1][0] > _LISTED_FOR_S:
            folders = islice(folders_of(self.roots), MOST_LISTED)
            self._listed[:] = [(time.monotonic(), [self._report(folder) for folder in folders])]
        return self._listed[-1][1]

    def find(self, text: str) -> Environment:
        """Returns the environment that a spec names, as it is now. Raises ConfigError."""
        folder = self._require_allowed(Path(text)) if text.startswith("/") else self._named(text)
        environment = read(folder)
        if (problem := self._unsafe(environment)) is not None:
            raise ConfigError(problem)
        if not self._is_allowed(environment.opened[0]):
            raise ConfigError(f"{folder} became a link to another folder")
        return environment

    def unsafe_place(self, folder: Path) -> str | None:
        """Returns why jobs could change what lies in a folder, or None."""
        real = Path(os.path.realpath(folder))
        for written in self.writable:
            other = Path(os.path.realpath(written))
            inside = real.is_relative_to(other) or other.is_relative_to(real)
            if inside or folder_on_the_way(folder, [written]) is not None:
                return f"jobs may write {folder}: it lies in {written}, or has it inside (--allow-path {written}:rw)"
        data = Path(os.path.realpath(self.data_dir))
        if real.is_relative_to(data) or data.is_relative_to(real):
            return f"{folder} lies in the data directory of the service, or has it inside"
        if not self.protects and os.access(real, os.W_OK):
            return f"jobs may write {folder}: this worker does not keep them from it (TORCHYARD_ISOLATION)"
        return None

    def _report(self, folder: Path) -> EnvironmentReport:
        try:
            environment = read(folder)
        except ConfigError as error:
            return EnvironmentReport(name=folder.name, path=str(folder), obstacle=error.message)
        return environment.report(obstacle=self._unsafe(environment) or "")

    def _named(self, name: str) -> Path:
        folders = [folder for folder in folders_of(self.roots) if folder.name == name]
        if len(folders) > 1:
            both = ", ".join(map(str, folders[:_SHOWN]))
            raise ConfigError(
                f"this worker has several environments with the name {name}: give the path of one: {both}"
            )
        if not folders:
            raise ConfigError(f"this worker has no environment {name}: {self._offer()}")
        return folders[0]

    def _require_allowed(self, path: Path) -> Path:
        folder = path.parent.parent if path.parent.name == "bin" and path.name.startswith("python") else path
        if not self._is_allowed(os.path.realpath(folder)):
            raise ConfigError(
                f"{folder} is not among the environments of this worker (TORCHYARD_ENVIRONMENTS), nor below a folder"
                f" that it allows (--allow-path): {self._offer()}"
            )
        return folder

    def _is_allowed(self, real: str) -> bool:
        return any(Path(real).is_relative_to(os.path.realpath(root)) for root in (*self.roots, *self.allowed))

    def _offer(self) -> str:
        names = sorted({folder.name for folder in folders_of(self.roots)})
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return f"it offers {', '.join(names[:_SHOWN])}{more}" if names else "it offers none"

    def _unsafe(self, environment: Environment) -> str | None:
        """Returns why jobs could change what others run in the environment, or None."""
        problems = (self.unsafe_place(part) for part in (environment.path, *environment.bases))
        return next((problem for problem in problems if problem is not None), None)
