"""What the operator decides about packages of jobs, and what they are installed on."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib import metadata
from pathlib import Path
import platform
import re
import site
from urllib.parse import urlsplit

from torchyard.contract.cluster.devices import IsolationReport
from worker.packages.order import SERVICE
from worker.sandbox import levels

_PARTS = ("torch", "torchvision", "torchaudio", "triton")
_BELONGS = ("nvidia-", "cuda-")
"""How the names of packages begin that belong to one version of torch."""


@dataclass(frozen=True, kw_only=True)
class PackageRules:
    """How one worker installs packages."""

    allowed: bool = True
    builds: bool = True
    """Whether packages may be built, which runs code of theirs. Else only wheels are installed."""
    index: str = ""
    """The URL of the index, perhaps with a password. Empty: what the job says, and PyPI."""
    timeout: timedelta = timedelta(minutes=10)
    """How long an installation may take."""
    read_seconds: int = 30
    """How much processor time the reading of what a job requires may take: a lock of 16 MiB needs about 2 s."""
    isolation: IsolationReport = levels.OFF

    @property
    def shown_index(self) -> str:
        """The index without its password."""
        parts = urlsplit(self.index)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if self.index else "PyPI"

    def obstacle(self) -> str | None:
        """Returns why no job gets packages of its own, or None."""
        if not self.allowed:
            return "this worker installs no packages (TORCHYARD_PACKAGES is forbid)"
        if self.isolation.level == "strict":
            return "a worker with strict isolation installs no packages"
        return None


@cache
def family() -> dict[str, str]:
    """Returns the versions of the worker's torch, and of its packages that fit this version alone."""
    folders = (path.name for folder in site_folders() for path in Path(folder).glob("*.dist-info"))
    pairs = (name.removesuffix(".dist-info").partition("-") for name in folders)
    named = {re.sub("[-_.]+", "-", name.lower()): number for name, _, number in pairs}
    return {name: number for name, number in sorted(named.items()) if name in _PARTS or name.startswith(_BELONGS)}


def base(provided: Sequence[str]) -> dict[str, str]:
    """Returns the versions of what an environment is built with and on: another one needs another environment."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "uv": version("uv"),
        "site": ":".join(site_folders()),
        **{name: version(name) for name in (SERVICE, *provided)},
        "torch": version("torch"),
    }


def site_folders() -> list[str]:
    """Returns the folders with the worker's packages."""
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [folder for folder in (*site.getsitepackages(), *user) if Path(folder).is_dir()]


def version(name: str) -> str:
    """Returns the installed version of a package, or nothing."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
