"""The command line: it loads the command that is run, groups its help, and says in our words what is wrong."""

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer._click.exceptions import NoSuchOption  # typer names it nowhere else
from typer.core import TyperCommand, TyperGroup

from torchyard.cli.commands import COMMANDS, EVERYDAY, FILES, GROUPS, MAKERS, OPTIONS, RENAMED, VERBS
from torchyard.cli.helptexts import EXAMPLES, SECTIONS
from torchyard.cli.values import PlainValues

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torchyard.cli.commands import Command

_SHOWN = 100
"""Characters of a wrong value."""
_COMPLETE = "value_error"
"""The type of a finding that has the value in its words."""
_OWN_OPTIONS = {name: {"allow_interspersed_args": False} for name in ("run", "exec")}
"""What follows the program are its own arguments, also those that look like options."""
_HELP = {"help_option_names": ["-h", "--help"]}


class CommandLine(PlainValues, TyperGroup):
    """All commands. Each is imported when it is asked for. They refuse arguments in our words, at any depth."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns the names of all commands, in the order of the help."""
        return [*COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Returns the command, None if there is none of this name."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = load(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the command that the arguments begin with."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            ctx.fail(f"unknown command {name!r}{_meant(name)}; see `{ctx.command_path} --help`")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the everyday commands, then each group."""
        _write_group(formatter, "Commands", EVERYDAY)
        for heading, group in GROUPS.items():
            _write_group(formatter, heading, group)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Returns the commands that begin so, without importing them."""
        from typer._click.shell_completion import CompletionItem  # the class that the base answers

        found = [(name, each) for name, each in COMMANDS.items() if name.startswith(incomplete)]
        options = super(TyperGroup, self).shell_complete(ctx, incomplete)
        return [*(CompletionItem(name, help=each.summary) for name, each in found), *options]

    def invoke(self, ctx: Any) -> Any:
        """Runs the command."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _message(error)
            raise


def load(name: str) -> Any:
    """Returns a command as it is run, with its module imported."""
    module, _, attribute = COMMANDS[name].target.partition(":")
    found = getattr(import_module(f"torchyard.cli.{module}"), attribute)
    alone = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    if isinstance(found, typer.Typer):
        kind = found.info.cls if isinstance(found.info.cls, type) else _Noun
        alone.add_typer(found, name=name, cls=kind)
        command = typer.main.get_group(alone).commands[name]
    else:
        alone.command(name, cls=_Leaf, context_settings={**_HELP, **_OWN_OPTIONS.get(name, {})})(found)
        command = typer.main.get_command(alone)
    _name_values(command)
    return command


class _Noun(PlainValues, TyperGroup):
    """The commands of one noun. One that had another name says the new one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        verb = VERBS.get(args[0])
        if args[0] not in self.commands and verb in self.commands:
            ctx.fail(f"unknown command {args[0]!r}; use `{verb}`")
        if args[0] in {"add", "new"} and args[0] not in self.commands and self.name in MAKERS:
            ctx.fail(f"unknown command {args[0]!r}; use `{MAKERS[self.name]}`")
        if args[0] not in self.commands and self.name in FILES and not args[0].startswith("-"):
            ctx.fail(f"unknown command {args[0]!r}; to submit a file, use `{FILES[self.name]}`")
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_examples(self, formatter)


class _Leaf(PlainValues, TyperCommand):
    """A command whose help has its options in sections, and ends with examples. An old option says the new one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments."""
        try:
            return super().parse_args(ctx, args)
        except NoSuchOption as error:
            new = OPTIONS.get(self.name or "", {}).get(error.option_name)
            if new is not None:
                ctx.fail(f"unknown option {error.option_name}; use {new}")
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the arguments, the options without a section, then each section."""
        named = {name: heading for heading, names in SECTIONS.get(self.name or "", {}).items() for name in names}
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []} | {
            key: [] for key in named.values()
        }
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
                sections[named.get(parameter.name, kind)].append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_examples(self, formatter)


def _write_examples(command: Any, formatter: Any) -> None:
    lines = EXAMPLES.get(command.name, ()) if command.name in COMMANDS else ()
    if lines:
        with formatter.section("Examples"):
            for line in lines:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def _name_values(command: Any) -> None:
    """Gives each value of an option a name in the help, in place of its type in Python."""
    for below in getattr(command, "commands", {}).values():
        _name_values(below)
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = _no_type
        elif parameter.metavar is None and not parameter.is_flag:
            parameter.metavar = _value_name(parameter)


def _no_type(ctx: Any) -> None:
    """Says nothing of an argument's type: its name says it."""


def _value_name(option: Any) -> str:
    kind = option.type_descriptor
    if kind.is_choice:
        return "|".join(str(getattr(choice, "value", choice)) for choice in kind.choices)
    return "N" if kind.annotation in {int, float} else option.name.rpartition("_")[2].upper()


def _meant(name: str) -> str:
    if name in RENAMED:
        return f"; use `{RENAMED[name]}`"
    close = get_close_matches(name, COMMANDS)
    return f"; did you mean `{close[0]}`?" if close else ""


def _write_group(formatter: Any, heading: str, commands: "Mapping[str, Command]") -> None:
    with formatter.section(heading):
        formatter.write_dl([(name, each.summary) for name, each in commands.items()])


def _message(error: typer.BadParameter) -> str:
    from pydantic import ValidationError  # takes long, and most commands are right

    from torchyard.contract.wire.wording import words

    if not isinstance(error.__cause__, ValidationError):
        return error.message
    finding = error.__cause__.errors(include_url=False)[0]
    said = words(finding)
    return said if finding["type"] == _COMPLETE else f"{said}; got {str(finding['input'])[:_SHOWN]!r}"
