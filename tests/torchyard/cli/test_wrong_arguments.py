"""What the command line says of a wrong argument: in our words, whatever the command and the option."""

from typing import Any

import pytest
import typer
from typer.core import TyperArgument

from tests.approved import Approved
from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.cli.reading import commands, read
from tests.torchyard.contract.wire.test_findings import RAW

ODD = ["x", "-1", "0", "1.5", "", "a b", "9" * 30, "z" * 300, "nan"]


@pytest.mark.parametrize("name", [*commands()])
def test_no_wrong_argument_is_answered_in_words_of_a_library(name: str) -> None:
    refused = [said for parameter in commands()[name].params for said in _refusals(name, parameter)]
    assert [said for said in refused if RAW.search(said)] == []
    assert refused or name not in {"ps", "logs", "up", "users add"}


@pytest.mark.parametrize(
    "arguments",
    [
        "users add bob --role boss",
        "run --devices x train.py",
        "ps --limit -3",
        "up --port 99999",
        "data push absent",
    ],
)
def test_a_wrong_argument_is_named_with_what_is_allowed(arguments: str, approved: Approved) -> None:
    done = run_in_process(arguments.split(), environment(None, ""))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == approved.of_row("stderr")


def test_a_wrong_variable_is_named_with_what_is_allowed(approved: Approved) -> None:
    done = run_in_process(["up", "--check"], environment(None, "") | {"TORCHYARD_PORT": "abc"})
    assert done.stderr == approved("errors")


def _refusals(name: str, parameter: Any) -> list[str]:
    found: list[str] = []
    for value in ODD:
        given = ["--", value] if isinstance(parameter, TyperArgument) else [f"{parameter.opts[0]}={value}"]
        try:
            read([*name.split(), *given])
        except typer.BadParameter as error:
            found.append(error.message)
        except Exception as error:  # noqa: BLE001 - a parameter that is missing, or a flag that takes no value
            found.append(str(error))
    return found
