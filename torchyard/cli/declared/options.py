"""What a program declares of one option, and of all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["value", "flag", "no-flag", "words", "equals"]
"""How a value is written, as `torchyard.contract.sweeps.arguments.Style` names it."""
Library = Literal["hydra", "fire"]
"""A library that reads all arguments in its own way."""
ANY_PARSER = None
MAIN_PARSER = ""


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option as one statement declares it."""

    names: tuple[str, ...]
    kind: Kind = "value"
    no_truths: str | None = None
    """Why `true` and `false` are no values of it, and what to write; None if they are."""
    is_bool_type: bool = False
    """Whether it is `type=bool`, for which every text but the empty one is true."""
    words: int | None = 1
    """How many arguments its value has; None if that varies."""
    parser: str | None = ANY_PARSER
    """The sub-command to which it belongs, or `MAIN_PARSER`."""
    where: str
    """The file and the line."""


@dataclass(frozen=True)
class Declared:
    """The command-line options that the source of a program declares."""

    options: Sequence[Option] = ()
    commands: frozenset[str] = frozenset()
    """The names of sub-commands."""
    library: Library | None = None
    file: str | None = None

    def find(self, name: str, args: Sequence[str]) -> list[Option]:
        """Returns what declares an option, by its name without dashes, for the sub-command that is in `args`."""
        found = [option for option in self.options if self._spelled(option, name) is not None]
        command = next((arg for arg in args if arg in self.commands), None)
        of_command = [option for option in found if option.parser in {ANY_PARSER, MAIN_PARSER, command}]
        return of_command or found

    def spelled(self, option: Option, name: str) -> str:
        """Returns the name of an option as it is declared, which may have other dashes: `--learning-rate`."""
        return self._spelled(option, name) or f"--{name}"

    def _spelled(self, option: Option, name: str) -> str | None:
        return next((found for found in _spellings(name) if found in option.names), None)


def _spellings(name: str) -> Iterator[str]:
    bare = name.lstrip("-")
    for text in (bare, bare.replace("_", "-"), bare.replace("-", "_")):
        yield f"--{text}"
    yield f"-{bare}"
