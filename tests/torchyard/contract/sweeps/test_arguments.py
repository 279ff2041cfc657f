"""How a sweep writes a value into the arguments of a script."""

from typing import Any

import pytest

from torchyard.contract.errors import InvalidSpec
from torchyard.contract.recipes import Script
from torchyard.contract.spec.maximums import Maximums
from torchyard.contract.sweeps.arguments import Style, with_argument
from torchyard.contract.sweeps.points import resolved, spec_of
from torchyard.contract.sweeps.spec import SweepSpec, parse_sweep


def written(args: list[str], value: Any, style: Style | None, *, key: str = "args.x", ends: bool = True) -> list[Any]:
    return with_argument(args, key, value, style=style, ends=ends)


@pytest.mark.parametrize(
    ("style", "value", "args"),
    [
        ("value", 0.1, ["--x", "0.1"]),
        ("value", True, ["--x", "true"]),
        ("value", False, ["--x", "false"]),
        ("value", "1e3", ["--x", "1e3"]),
        ("value", "-1e-3", ["--x=-1e-3"]),
        ("value", None, []),
        ("equals", 3, ["--x=3"]),
        ("flag", True, ["--x"]),
        ("flag", False, []),
        ("no-flag", True, ["--x"]),
        ("no-flag", False, ["--no-x"]),
        ("words", [0.9, "a b"], ["--x", "0.9", "a b"]),
        ("hydra", True, ["x=true"]),
        ("hydra", None, ["x=null"]),
        ("hydra", [1, 2], ["x=[1,2]"]),
        ("hydra", "a,b", ["x=a,b"]),
        (None, True, ["--x"]),
        (None, False, []),
    ],
)
def test_a_value_is_written_in_each_style(style: Style | None, value: Any, args: list[str]) -> None:
    assert written([], value, style) == args


@pytest.mark.parametrize(
    ("args", "value", "style", "expected"),
    [
        (["--x", "false", "in.csv"], True, "value", ["--x", "true", "in.csv"]),
        (["--x", "false"], False, "flag", []),
        (["--x", "in.csv"], False, "no-flag", ["--no-x", "in.csv"]),
        (["--no-x", "in.csv"], True, "no-flag", ["--x", "in.csv"]),
        (["--x", "in.csv"], True, "value", ["--x", "true", "in.csv"]),
        (["a", "--x=1", "b"], 2, "value", ["a", "--x=2", "b"]),
        (["--x", "-1", "b"], 2, "value", ["--x", "2", "b"]),
        (["--x", "--y"], 2, "value", ["--x", "2", "--y"]),
        (["--x", "-v"], 2, "value", ["--x", "2", "-v"]),
        (["--x", "1", "b", "--x", "3"], 2, "value", ["--x", "2", "b"]),
        (["--xx", "1"], 2, "value", ["--xx", "1", "--x", "2"]),
        (["a", "--", "--x", "1"], 2, "value", ["a", "--x", "2", "--", "--x", "1"]),
        (["a", "x=1", "+y=2"], 3, "hydra", ["a", "x=3", "+y=2"]),
        (["++x=1", "x=2"], 3, "hydra", ["++x=3"]),
        (["--name=run-{x}", "{x}/{y}"], "1e-3", "placed", ["--name=run-1e-3", "1e-3/{y}"]),
        (["--x", "false", "--y"], True, None, ["--x", "--y"]),
    ],
)
def test_a_value_replaces_the_one_that_is_there(args: list[str], value: Any, style: Style, expected: list[str]) -> None:
    assert written(args, value, style) == expected


def test_options_of_a_command_may_stand_behind_two_dashes() -> None:
    assert written(["run", "--", "train.py", "--x", "1"], 2, "value", ends=False) == [
        "run",
        "--",
        "train.py",
        "--x",
        "2",
    ]


def test_an_option_of_one_dash_keeps_it() -> None:
    assert written(["-lr", "1"], 2, "value", key="args.-lr") == ["-lr", "2"]


def sweep(values: list[Any], *, args: list[str], style: str | None = None, **spec: Any) -> SweepSpec:
    config = {"code": "file:///code", "entrypoint": "train.py", "args": args}
    styles = {} if style is None else {"styles": {"args.x": style}}
    job = {"trainer": "script", "config": config}
    return parse_sweep({"job": job, "parameters": {"args.x": values}, **styles, **spec})


@pytest.mark.parametrize(("args", "style"), [(["a"], "value"), (["--name={x}"], "placed")])
def test_a_sweep_says_how_it_writes_each_argument(args: list[str], style: str) -> None:
    known, first = resolved(sweep([True], args=args), visibility="private", maximums=Maximums())
    assert known.styles == {"args.x": style}
    assert isinstance(first.config, Script)
    assert first.config.args == (["a", "--x", "true"] if style == "value" else ["--name=true"])


def test_a_sweep_that_was_stored_before_there_were_styles_goes_on_as_it_began() -> None:
    config = spec_of(sweep([True], args=["a"]), 0, {"args.x": True}).config
    assert isinstance(config, Script) and config.args == ["a", "--x"]


@pytest.mark.parametrize(
    ("values", "args", "style", "said"),
    [
        ([0.5], [], "flag", "neither true nor false"),
        (["a"], [], "no-flag", "--x or --no-x"),
        ([None], ["{x}"], None, "null has no text"),
    ],
)
def test_what_a_style_cannot_write_is_refused(values: list[Any], args: list[str], style: str | None, said: str) -> None:
    with pytest.raises(InvalidSpec) as raised:
        resolved(sweep(values, args=args, style=style), visibility="private", maximums=Maximums())
    assert raised.value.errors[0].field == "parameters.args.x"
    assert said in raised.value.errors[0].message


@pytest.mark.parametrize("key", ["args.y", "env.A", "x"])
def test_a_style_is_of_an_argument_that_varies(key: str) -> None:
    with pytest.raises(InvalidSpec) as raised:
        sweep([1], args=[], styles={key: "flag"})
    assert f"styles.{key} must be an argument" in raised.value.errors[0].message
