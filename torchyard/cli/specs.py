"""Reads job specs from files and from stdin: YAML, JSON, several documents, or a JSON document a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
import errno
import functools
import json
import math
import re
from typing import TYPE_CHECKING, Any

from torchyard.cli import named
from torchyard.cli.named import STDIN
from torchyard.contract.errors import InvalidSpec, TooLarge
from torchyard.contract.media.data import whole

if TYPE_CHECKING:
    import yaml

_MOST_YAML_BYTES = 1 << 20
"""Reading more takes minutes."""
_TEXT = "tag:yaml.org,2002:str"
_EXPONENT = re.compile(r"^[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+$")
"""Numbers with an exponent, of which YAML 1.1 takes those without a point or a sign for texts."""
_EXPONENT_TAG = "tag:torchyard,2026:exponent"
_OF_TEXTS = frozenset({"args", "env", "labels", "name"})
"""Keys of a spec whose values are texts: a commit may be `12e4567`."""


@dataclass(frozen=True)
class ReadSpec:
    """A spec, and where it was."""

    place: str
    spec: dict[str, Any]


def read_spec(file: str) -> dict[str, Any]:
    """Returns the only spec of a file. Raises InvalidSpec and TooLarge."""
    found = read_specs([file])
    if len(found) > 1:
        raise InvalidSpec(f"{_name(file)} has {len(found)} job specs: give one")
    return found[0].spec


def read_specs(files: Sequence[str]) -> list[ReadSpec]:
    """Returns the specs of the files, in order. Raises InvalidSpec and TooLarge, which name the file."""
    if files.count(STDIN) > 1:
        raise InvalidSpec("standard input can be read once: give `-` once")
    return [spec for file in files for spec in _read(file)]


def _read(file: str) -> list[ReadSpec]:
    name = _name(file)
    written = _bytes(file)
    lines = _json_lines(written)
    if lines is not None:
        return [ReadSpec(f"{name}, line {number}", _checked(spec, name)) for number, spec in lines.items()]
    documents = [document for document in _documents(written, name) if document is not None]
    if len(documents) < 2:
        return [ReadSpec(name, _checked(documents[0] if documents else None, name))]
    places = (f"{name}, document {number}" for number in range(1, len(documents) + 1))
    return [ReadSpec(place, _checked(spec, place)) for place, spec in zip(places, documents, strict=True)]


def _name(file: str) -> str:
    return "standard input" if file == STDIN else file


def _bytes(file: str) -> bytes:
    from torchyard.contract.jobs.requests import MOST_BATCH_BYTES

    name = _name(file)
    try:
        return named.read(file, MOST_BATCH_BYTES)
    except OSError as error:
        if error.errno == errno.EFBIG:
            most = f"which have at most {MOST_BATCH_BYTES} bytes together"
            raise TooLarge(f"{name} is too large to have job specs, {most}") from None
        raise InvalidSpec(f"{name} cannot be read: {error.strerror or error}") from None


def _json_lines(written: bytes) -> dict[int, Any] | None:
    """Returns the objects by the numbers of their lines, if each of several lines is one; else None."""
    lines = {number: line for number, line in enumerate(written.splitlines(), 1) if line.strip()}
    if len(lines) < 2 or not all(line.lstrip().startswith(b"{") for line in lines.values()):
        return None
    try:
        return {number: json.loads(line) for number, line in lines.items()}
    except (ValueError, RecursionError):
        return None


def _documents(written: bytes, name: str) -> Iterator[Any]:
    import yaml

    if len(written) > _MOST_YAML_BYTES:
        raise TooLarge(
            f"{name} is too large to be read as YAML, of which it has {len(written)} bytes and may have"
            f" {_MOST_YAML_BYTES}: write many jobs as JSON, each on a line"
        )
    try:
        yield from yaml.load_all(written, Loader=_loader())
    except RecursionError:
        raise InvalidSpec(f"{name} is nested too deep to be a job spec") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidSpec(f"{name} is neither YAML nor JSON: {error}") from None


@functools.cache
def _loader() -> type[yaml.SafeLoader]:
    """Returns a safe loader to which `on` is the name of a key, and not the truth, as in YAML 1.1.

    A time is the text that it is, as JSON has no times. `1e-3` is a number, as in YAML 1.2 and in the page; where a
    spec has texts alone, it is one.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            for key, value in node.value:
                if key.tag == "tag:yaml.org,2002:bool" and key.value == "on":
                    key.tag = _TEXT
                if key.tag == _TEXT and key.value in _OF_TEXTS:
                    _keep_exponents(value)
            return super().construct_mapping(node, deep=deep)

        def construct_exponent(self, node: yaml.ScalarNode) -> float | str:
            number = float(node.value)
            return whole(number) if math.isfinite(number) else node.value

    Loader.add_constructor("tag:yaml.org,2002:timestamp", Loader.construct_yaml_str)
    Loader.add_implicit_resolver(_EXPONENT_TAG, _EXPONENT, [*"-+.0123456789"])
    Loader.add_constructor(_EXPONENT_TAG, Loader.construct_exponent)
    return Loader


def _keep_exponents(node: yaml.Node) -> None:
    """Makes texts of a value, or of the items or values that it has, where they look like `1e-3`."""
    inner = node.value if isinstance(node.value, list) else [node]
    for item in inner:
        each = item[1] if isinstance(item, tuple) else item
        if each.tag == _EXPONENT_TAG:
            each.tag = _TEXT


def _checked(spec: Any, place: str) -> dict[str, Any]:
    if not isinstance(spec, dict):
        raise InvalidSpec(f"{place} is not a job spec: a mapping with the key `trainer`")
    return spec
