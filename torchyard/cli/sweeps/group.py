"""The group `sweep`, for which another word than one of its commands is the file of a sweep to submit."""

from typing import Any, ClassVar

from typer.core import TyperGroup


class SweepGroup(TyperGroup):
    """Reads `sweep sweep.yaml` as `sweep submit sweep.yaml`."""

    default: ClassVar[str] = "submit"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *self.get_help_option_names(ctx)}:
            args = [self.default, *args]
        return super().parse_args(ctx, args)
