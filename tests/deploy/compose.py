"""docker-compose.yml, read as Docker Compose reads it."""

from collections.abc import Callable, Mapping
from functools import cache
import json
from pathlib import Path
import re
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()

_REFERENCE = re.compile(r"\$(?:\$|\{(?P<name>\w+)(?:(?P<how>:[-?])(?P<word>[^}]*))?\}|(?P<wrong>))")


class MissingVariableError(Exception):
    """A required variable is not set; has the message that the file defines, as Compose would show it."""


def load(variables: Mapping[str, str]) -> dict[str, Any]:
    """Returns the file with `variables` substituted. Raises MissingVariableError."""
    return substituted(_parsed(), lambda text: _interpolated(text, variables))


def substituted(node: Any, change: Callable[[str], str]) -> Any:
    """Returns `node` with every text changed, but not its keys."""
    if isinstance(node, str):
        return change(node)
    if isinstance(node, dict):
        return {key: substituted(value, change) for key, value in node.items()}
    if isinstance(node, list):
        return [substituted(value, change) for value in node]
    return node


def image_health() -> list[str]:
    """Returns the Dockerfile's health check, in the form of a service's `healthcheck.test`."""
    found = re.search(r"^HEALTHCHECK .*\\\n\s+CMD (\[.*\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert found is not None
    return ["CMD", *json.loads(found[1])]


@cache
def _parsed() -> Any:
    return yaml.safe_load(TEXT)


def _interpolated(text: str, variables: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        assert found["wrong"] is None, f"a $ that begins no variable: {text}"
        given = variables.get(found["name"], "")
        if given or found["how"] is None:
            return given
        if found["how"] == ":?":
            raise MissingVariableError(found["word"])
        return found["word"]

    return _REFERENCE.sub(value, text)
