"""The TOML that says what a program requires: a script's metadata (PEP 723), `pyproject.toml` and `uv.lock`."""

from itertools import pairwise
import tomllib
from typing import Any

from torchyard.contract.errors import ConfigError, DataError
from worker.packages.code import too_large
from worker.packages.order import MAX_TEXT_BYTES
from worker.packages.provided import python_fits

_BEGIN, _END = "# /// script", "# ///"
_INDEX_KEYS = {"index", "index-url", "extra-index-url", "find-links", "no-index", "sources", "pip"}
_BUILD_KEYS = {"no-binary", "no-binary-package", "pip"}


def metadata_of(script: str, name: str) -> tuple[str, dict[str, Any]]:
    """Returns the only block of metadata in a script, as it stands there and parsed. Raises DataError."""
    blocks = _blocks(script)
    if len(blocks) != 1:
        many = "more than one block" if blocks else "no block"
        raise DataError(f"{name} has {many} of metadata that begins with `{_BEGIN}` (PEP 723)")
    (lines,) = blocks
    block = "\n".join(lines) + "\n"
    if len(block.encode()) > MAX_TEXT_BYTES:
        raise too_large(f"the metadata of {name}", size=len(block.encode()), most=MAX_TEXT_BYTES)
    return block, toml("\n".join(line[2:] for line in lines[1:-1]), name)


def toml(text: str, name: str) -> dict[str, Any]:
    """Raises DataError."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name} is not valid TOML: {error}") from None


def dependencies(metadata: dict[str, Any], name: str) -> list[str]:
    """Returns the requirements in a script's metadata. Raises DataError."""
    names = metadata.get("dependencies", [])
    if not isinstance(names, list) or not all(isinstance(item, str) for item in names):
        raise DataError(f"{name}: dependencies must be a list of texts")
    return names


def locked(lock: dict[str, Any]) -> list[str]:
    """Returns the packages of a `uv.lock` as requirements of exactly these versions."""
    packages = lock.get("package", [])
    tables = [_table(item) for item in packages] if isinstance(packages, list) else []
    return [f"{item.get('name')}=={item.get('version')}" for item in tables if item.get("version")]


def required_by(table: dict[str, Any], name: str, *, own_index: bool) -> list[str]:
    """Returns what a `pyproject.toml` requires, to be built and to run. Raises ConfigError for an address there."""
    build, project = _table(table.get("build-system")), _table(table.get("project"))
    lines = [*_texts(project.get("dependencies")), *_texts(build.get("requires"))]
    for line in lines if own_index else []:
        if "@" in line.partition(";")[0]:
            raise ConfigError(f"{name}: {one_index(f'the address in {line[:100]}')}")
    return _texts(project.get("dependencies"))


def required_python(table: dict[str, Any], name: str, version: str, *, project: bool) -> None:
    """Raises ConfigError if a script's metadata or a `pyproject.toml` requires another Python than this version."""
    wanted = (_table(table.get("project")) if project else table).get("requires-python")
    if isinstance(wanted, str) and not python_fits(wanted, version):
        raise ConfigError(
            f"{name} requires Python {wanted[:100]}, and packages are installed for the worker's Python {version}:"
            " --python (config.python) names an environment with another one"
        )


def require_registries(lock: dict[str, Any], name: str) -> None:
    """Raises ConfigError if a package of a `uv.lock` comes from an address instead of an index."""
    packages = lock.get("package", [])
    for item in packages if isinstance(packages, list) else []:
        if {"url", "git"} & _table(_table(item).get("source")).keys():
            package = str(_table(item).get("name"))[:100]
            raise ConfigError(f"{name}: {one_index(f'the address of {package}')}")


def require_one_index(table: dict[str, Any], name: str, *, strict: bool = False) -> None:
    """Raises ConfigError if `[tool.uv]` says where packages come from. `strict`: if it says anything at all."""
    chosen = sorted(key for key in _table(_table(table.get("tool")).get("uv")) if strict or key in _INDEX_KEYS)
    if chosen:
        raise ConfigError(f"{name}: {one_index(f'tool.uv.{chosen[0]}')}")


def require_wheels(table: dict[str, Any], name: str) -> None:
    """Raises ConfigError if `[tool.uv]` asks for packages to be built: for uv that counts more than `--no-build`."""
    chosen = sorted(_BUILD_KEYS & _table(_table(table.get("tool")).get("uv")).keys())
    if chosen:
        raise ConfigError(f"{name}: {only_wheels(f'tool.uv.{chosen[0]}')}")


def only_wheels(option: str) -> str:
    """Returns why an option is refused."""
    return f"this worker builds no packages (TORCHYARD_PACKAGES is wheels): leave {option} out"


def one_index(option: str) -> str:
    """Returns why an option is refused."""
    return f"this worker installs from one package index (TORCHYARD_PACKAGE_INDEX): leave {option} out"


def _blocks(script: str) -> list[list[str]]:
    """Returns the lines of each block: in a run of comments from the first beginning to the last end."""
    lines = [*script.split("\n"), ""]
    gaps = [-1, *(at for at, line in enumerate(lines) if line != "#" and not line.startswith("# "))]
    blocks: list[list[str]] = []
    for before, after in pairwise(gaps):
        run = lines[before + 1 : after]
        if _BEGIN in run and _END in run:
            begin, end = run.index(_BEGIN), len(run) - 1 - run[::-1].index(_END)
            blocks += [run[begin : end + 1]] if end > begin + 1 else []
    return blocks


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
