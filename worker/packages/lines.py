"""Requirements files, with all that they include, as lines of one file. See the format of pip.

Where the operator has chosen the index, each line is parsed and written anew, so that uv reads nothing but names,
versions and hashes.
"""

from collections.abc import Callable, Iterator, Mapping
import posixpath
import re
from types import MappingProxyType

from packaging.requirements import InvalidRequirement, Requirement

from torchyard.contract.errors import ConfigError, DataError
from worker.packages.code import too_large
from worker.packages.metadata import one_index, only_wheels
from worker.packages.order import MAX_TEXT_BYTES
from worker.packages.provided import Wishes

_PROJECT = re.compile(
    r"(?:(?:-e|--editable)[ =]\s*)?(?P<path>\.(?:/[A-Za-z0-9_.\-/]*)?)(?P<extras>\[[A-Za-z0-9_,.\- ]+\])?"
)
"""A folder of the code to install: `.`, `-e .`, `./lib[extra]`. It is built from a copy, also with `-e`."""
_INCLUDES = {"-r": "-r", "--requirement": "-r", "--requirements": "-r", "-c": "-c", "--constraint": "-c"}
_PLAIN_OPTIONS = {"--no-binary", "--only-binary", "--pre", "--prefer-binary", "--require-hashes"}
"""The options of a file that name no place from which packages come."""
_BUILDS = "--no-binary"
"""For uv, this option of a file counts more than its own `--no-build`."""
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9:,._-]*")
_HASH = re.compile(r"[a-z0-9]{1,20}:[0-9A-Fa-f]{1,200}")
_SHOWN = 100


class Lines:
    """Collects requirements and constraints. `read` returns the text of a file of at most so many bytes.

    `own_index`: the operator chose where packages come from, so that the job may not. `builds`: whether packages that
    are no wheels may be built.
    """

    def __init__(
        self,
        read: Callable[[str, int], str],
        *,
        own_index: bool,
        builds: bool = True,
        versions: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.requirements: list[str] = []
        self.constraints: list[str] = []
        self.wishes = Wishes(versions)
        """What they ask of the worker's packages, whose `versions` are known."""
        self.projects: list[str] = []
        """Folders of the code to install, with extras: `.`, `lib[extra]`."""
        self._read = read
        self._own_index = own_index
        self._builds = builds
        self._seen: set[tuple[str, bool]] = set()
        self._bytes = 0

    def add_file(self, name: str) -> None:
        """Adds the lines of a file of the code, and of those that it includes. Raises DataError and ConfigError."""
        waiting = [(posixpath.normpath(name), False)]
        while waiting:
            file = waiting.pop()
            if file not in self._seen:
                self._seen.add(file)
                waiting += self._add_file(*file)

    def add_requirement(self, text: str, where: str) -> None:
        """Adds one requirement. Raises ConfigError and DataError."""
        self._add(text.strip(), where, constrains=False)

    def add_project(self, path: str, extras: str, where: str) -> None:
        """Adds a folder of the code, which is built. Raises ConfigError and DataError."""
        folder = posixpath.normpath(path)
        if folder.startswith(("..", "/")):
            raise DataError(f"{where}: {path} is outside the code folder")
        if not self._builds:
            raise ConfigError(f"{where}: {only_wheels(folder)}")
        self.projects.append(f"{folder}{extras}")

    def _add_file(self, name: str, constrains: bool) -> Iterator[tuple[str, bool]]:
        """Yields the files that are included: each with whether it only constrains."""
        text = self._read(name, MAX_TEXT_BYTES)
        self._bytes += len(text.encode())
        if self._bytes > MAX_TEXT_BYTES:
            raise too_large(f"{name}, with the files that were read before it,", size=self._bytes, most=MAX_TEXT_BYTES)
        for number, line in _logical(text):
            where = f"{name}, line {number}"
            option, value = _option(line)
            kind = _INCLUDES.get(option)
            if (project := _PROJECT.fullmatch(line)) is not None and not constrains:
                self.add_project(project["path"], project["extras"] or "", where)
            elif kind is None:
                self._add(line, where, constrains=constrains)
            elif "://" in value:
                self._add_remote(kind, value, where, constrains=constrains)
            else:
                yield posixpath.normpath(posixpath.join(posixpath.dirname(name), value)), constrains or kind == "-c"

    def _add_remote(self, kind: str, url: str, where: str, *, constrains: bool) -> None:
        if self._own_index:
            raise ConfigError(f"{where}: {one_index(f'{kind} {url[:_SHOWN]}')}")
        if not self._builds:  # nobody has read what is there
            raise ConfigError(f"{where}: {only_wheels(f'{kind} {url[:_SHOWN]}')}")
        self._keep(f"{kind} {url}", constrains=constrains)

    def _add(self, line: str, where: str, *, constrains: bool) -> None:
        if not line.startswith("-"):
            self.wishes.note(line, constrains=constrains)
        if not self._builds and line.startswith("-") and _BUILDS in line:
            raise ConfigError(f"{where}: {only_wheels(_BUILDS)}")
        if self._own_index:
            line = _checked_option(line, where) if line.startswith("-") else _checked_requirement(line, where)
        self._keep(line, constrains=constrains)

    def _keep(self, line: str, *, constrains: bool) -> None:
        (self.constraints if constrains else self.requirements).append(f"{line}\n")


def checked(text: str, name: str) -> str:
    """Returns the lines of a requirements file that name no place. Raises ConfigError and DataError for others."""
    lines = Lines(lambda name, most: "", own_index=True)
    for number, line in _logical(text):
        lines.add_requirement(line, f"{name}, line {number}")
    return "".join(lines.requirements)


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Yields each line that is not empty with its number: without comments, and joined with those that continue it."""
    first, parts = 1, list[str]()
    for number, line in enumerate((*text.split("\n"), ""), start=1):
        plain = _without_comment(line)
        parts.append(plain.removesuffix("\\"))
        if plain.endswith("\\"):
            continue
        if joined := "".join(parts).strip():
            yield first, joined
        first, parts = number + 1, []


def _without_comment(line: str) -> str:
    at = line.find("#")
    while at > 0 and not line[at - 1].isspace():
        at = line.find("#", at + 1)
    return line if at < 0 else line[:at]


def _option(line: str) -> tuple[str, str]:
    """Returns the option of a line and its value; of a requirement, nothing."""
    if not line.startswith("-"):
        return "", ""
    if not line.startswith("--"):
        return line[:2], line[2:].strip()
    at = next((at for at, character in enumerate(line) if character == "=" or character.isspace()), len(line))
    return line[:at], line[at:].strip().removeprefix("=").strip()


def _checked_option(line: str, where: str) -> str:
    option, value = _option(line)
    if option not in _PLAIN_OPTIONS or _PLAIN_VALUE.fullmatch(value) is None:
        raise ConfigError(f"{where}: {one_index(option[:_SHOWN])}")
    return f"{option} {value}".strip()


def _checked_requirement(line: str, where: str) -> str:
    wanted, _, hashes = " ".join(line.split()).partition(" --")
    try:
        requirement = Requirement(wanted.strip())
    except InvalidRequirement as error:
        if "/" in wanted or "\\" in wanted:
            raise ConfigError(f"{where}: {one_index(wanted[:_SHOWN])}") from None
        raise DataError(f"{where}: {wanted[:_SHOWN]!r} is not a requirement: {str(error)[:_SHOWN]}") from None
    if requirement.url is not None:
        raise ConfigError(f"{where}: {one_index(f'the address of {requirement.name[:_SHOWN]}')}")
    return " ".join([str(requirement), *_checked_hashes(f"--{hashes}" if hashes else "", where)])


def _checked_hashes(options: str, where: str) -> Iterator[str]:
    words = iter(options.replace("--hash=", "--hash ").split())
    for word in words:
        value = next(words, "")
        if word != "--hash" or _HASH.fullmatch(value) is None:
            raise ConfigError(f"{where}: {one_index(f'{word} {value}'[:_SHOWN])}")
        yield f"--hash={value}"
