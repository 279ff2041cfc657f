"""Says in our words what is wrong with an argument: the parser of the command line answers in those of pydantic."""

from typing import Any

import typer
from typer.core import TyperGroup

from torchyard.contract.wording import words

_SHOWN = 100
"""Characters of a wrong value."""
_COMPLETE = "value_error"
"""The type of a finding that has the value in its words."""


class OwnWords(TyperGroup):
    """A group whose commands, at any depth, refuse arguments in our words."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _message(error)
            raise


def _message(error: typer.BadParameter) -> str:
    from pydantic import ValidationError  # takes long, and most commands are right

    if not isinstance(error.__cause__, ValidationError):
        return error.message
    finding = error.__cause__.errors(include_url=False)[0]
    said = words(finding)
    return said if finding["type"] == _COMPLETE else f"{said}; it is {str(finding['input'])[:_SHOWN]!r}"
