"""One environment, as its files say. Nothing of it is run: who made it may be anybody whom the operator lets."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
import hashlib
from itertools import islice
import os
from pathlib import Path
import re

from torchyard.contract.cluster.devices import EnvironmentKind, EnvironmentReport
from torchyard.contract.errors import ConfigError
from torchyard.host.untrusted import read_given

LEAST_PYTHON = (3, 10)
LEAST_TORCH = (2, 1)
"""The oldest torch whose rendezvous can be held to loopback."""
CONDA_META = "conda-meta"
VENV_FILE = "pyvenv.cfg"
_OF_BASE = ("bin", "lib", "lib64", "include", "share", "etc", "ssl")
"""What a program reads of the installation from which a venv was made."""
_MOST_BYTES = 1 << 20
_MOST_NAMES = 20_000
_MOST_PLACES = 50
"""Folders of packages. Each line of a file may name one."""
_PYTHON_OF_CONDA = re.compile(r"python-(\d{1,4}\.\d{1,4}\.\d{1,4})(?!\d)[^-]*-[^-]*\.json")
_METADATA = (".dist-info", ".egg-info")
_TEXT = r"[ \t]*(?::[^=\n]*)?=[ \t]*['\"]([^'\"\n]{1,50})['\"]"
_TORCH = re.compile("^__version__" + _TEXT, re.MULTILINE)
_CUDA = re.compile("^cuda" + _TEXT, re.MULTILINE)
_NUMBERS = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")


@dataclass(frozen=True, kw_only=True)
class Environment:
    """An environment at `path`, with the Python `python` and the torch `torch`, of which it may have none."""

    path: Path
    kind: EnvironmentKind
    python: str
    torch: str
    cuda: str
    packages: int
    digest: str
    bases: tuple[Path, ...]
    """The installations from which a venv was made: by the name that it has for them, and without links."""
    opened: tuple[str, ...]
    """The canonical paths of what a program in it reads, the environment first: a name may become a link later."""

    @property
    def interpreter(self) -> Path:
        return self.path / "bin" / "python"

    @property
    def readable(self) -> tuple[Path, ...]:
        """What a program in it has to read."""
        return (self.path, *_parts(self.bases))

    @property
    def obstacle(self) -> str:
        """Why no ranks can run in it, or nothing. A command needs no torch."""
        if not self.torch:
            return "it has no torch"
        if _numbers(self.torch) < LEAST_TORCH:
            least = ".".join(map(str, LEAST_TORCH))
            return f"its torch {self.torch} is too old: {least} is the oldest whose rendezvous can be held to loopback"
        return ""

    def report(self, *, obstacle: str = "") -> EnvironmentReport:
        return EnvironmentReport(
            name=self.path.name,
            path=str(self.path),
            kind=self.kind,
            python=self.python,
            torch=self.torch,
            cuda=self.cuda,
            packages=self.packages,
            digest=self.digest,
            obstacle=obstacle or self.obstacle,
        )


def looks_like_one(folder: Path) -> bool:
    """Returns whether a folder is a venv or a conda environment; False if this user may not read it."""
    with suppress(OSError):
        return (folder / VENV_FILE).is_file() or (folder / CONDA_META).is_dir()
    return False


def lies_in(folder: Path, outer: Path) -> bool:
    """Returns whether a folder lies in another one, links resolved: who may write there can make one to anything."""
    return Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(outer))


def read(folder: Path) -> Environment:
    """Returns the environment in a folder. Raises ConfigError if it is none in which a job can run."""
    try:
        settings = _settings(folder / VENV_FILE) if (folder / VENV_FILE).is_file() else None
        if settings is None and not (folder / CONDA_META).is_dir():
            raise ConfigError(f"{folder} is not an environment: it has neither {VENV_FILE} nor {CONDA_META}")
        return _read(folder, settings)
    except (OSError, ValueError) as error:  # such as a name that is no text
        raise ConfigError(f"the environment {folder} cannot be read: {error}") from None


def _read(folder: Path, settings: dict[str, str] | None) -> Environment:
    python = _python_of_conda(folder) if settings is None else _python_of_venv(settings)
    if _NUMBERS.match(python) is None:
        raise ConfigError(f"the environment {folder} does not say which Python it has")
    if _numbers(python) < LEAST_PYTHON:
        raise ConfigError(f"the environment {folder} has Python {python}: 3.10 or later is needed")
    if not (folder / "bin" / "python").exists():
        raise ConfigError(f"the environment {folder} has no bin/python, or it leads nowhere")
    bases = () if settings is None else _bases(folder, settings, python)
    whole = settings is not None and settings.get("include-system-site-packages", "").lower() == "true"
    site_folders = (site for prefix in (folder, *(bases if whole else ())) for site in _sites(prefix, python))
    sites = list(dict.fromkeys(islice(site_folders, _MOST_PLACES)))
    names = sorted({*_packages(sites), *_packages_of_conda(folder)})
    torch, cuda = _torch_in(sites)
    return Environment(
        path=folder,
        kind="conda" if settings is None else "venv",
        python=python,
        torch=torch,
        cuda=cuda,
        packages=len(names),
        digest=hashlib.sha256("\n".join(names).encode()).hexdigest()[:16],
        bases=bases,
        opened=tuple(dict.fromkeys(map(os.path.realpath, (folder, *_parts(bases))))),
    )


def _parts(bases: Sequence[Path]) -> Iterator[Path]:
    parts = ((base, base / name) for base in bases for name in _OF_BASE)
    return (part for base, part in parts if part.exists() and lies_in(part, base))


def _settings(file: Path) -> dict[str, str]:
    lines = (line.partition("=") for line in _text(file).splitlines())
    return {name.strip().lower(): value.strip() for name, mark, value in lines if mark}


def _python_of_venv(settings: dict[str, str]) -> str:
    said = settings.get("version_info") or settings.get("version", "")
    return ".".join(said.split(".")[:3])


def _python_of_conda(folder: Path) -> str:
    matches = (_PYTHON_OF_CONDA.fullmatch(name) for name in _names(folder / CONDA_META))
    return next((match[1] for match in matches if match is not None), "")


def _bases(folder: Path, settings: dict[str, str], python: str) -> tuple[Path, ...]:
    """Returns the installations that a venv names. Raises ConfigError for what is none, as jobs are to read it."""
    home = Path(settings.get("home", ""))
    outer = home.parent if home.parent != Path("/") else Path(os.path.realpath(home)).parent  # `/bin` is `/usr/bin`
    named = [outer, Path(os.path.realpath(folder / "bin" / "python")).parent.parent]
    bases = dict.fromkeys([named[0], Path(os.path.realpath(named[0])), named[1]])
    if not home.is_absolute() or home.name != "bin":
        raise ConfigError(f"the environment {folder} does not name the Python from which it was made")
    for base in bases:
        if not (base / "lib" / f"python{_minor(python)}" / "os.py").is_file():
            raise ConfigError(f"the environment {folder} was made from {base}, which has no Python {_minor(python)}")
    return tuple(bases)


def _sites(prefix: Path, python: str) -> Iterator[Path]:
    """Yields the folders of packages below a prefix, and those that a file there adds."""
    for lib in ("lib", "lib64"):
        site = prefix / lib / f"python{_minor(python)}" / "site-packages"
        if not site.is_dir() or (lib == "lib64" and (prefix / lib).is_symlink()):
            continue
        yield site
        for name in _names(site):
            if name.endswith(".pth"):
                lines = (line.strip() for line in _text(site / name).splitlines())
                yield from (Path(line) for line in lines if line.startswith("/") and Path(line).is_dir())


def _packages(sites: Sequence[Path]) -> Iterator[str]:
    for site in sites:
        yield from (name for name in _names(site) if name.endswith(_METADATA))


def _packages_of_conda(folder: Path) -> list[str]:
    meta = folder / CONDA_META
    return [name for name in _names(meta) if name.endswith(".json")] if meta.is_dir() else []


def _torch_in(sites: Sequence[Path]) -> tuple[str, str]:
    """Returns the versions of the first torch, and of its CUDA; nothing where there is none."""
    for site in sites:
        file = site / "torch" / "version.py"
        if file.is_file():
            text = _text(file)
            torch, cuda = _TORCH.search(text), _CUDA.search(text)
            return "" if torch is None else torch[1], "" if cuda is None else cuda[1]
    return "", ""


def _names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in islice(entries, _MOST_NAMES)]


def _text(file: Path) -> str:
    return read_given(file, _MOST_BYTES).decode(errors="replace")


def _minor(python: str) -> str:
    return ".".join(map(str, _numbers(python)))


def _numbers(version: str) -> tuple[int, int]:
    match = _NUMBERS.match(version)
    return (0, 0) if match is None else (int(match[1]), int(match[2]))


def difference(before: EnvironmentReport, now: EnvironmentReport) -> str:
    """Returns what has changed between two attempts, for the job's owner; nothing if nothing has."""
    pairs = (("Python", before.python, now.python), ("torch", before.torch, now.torch), ("CUDA", before.cuda, now.cuda))
    said = [f"{name} {old or 'none'} became {new or 'none'}" for name, old, new in pairs if old != new]
    if not said and before.digest != now.digest:
        said = [f"its packages are others: {before.packages} before, {now.packages} now"]
    return ", ".join(said)
