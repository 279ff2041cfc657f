"""What `--sweep KEY=VALUES` says."""

from typing import Any

import pytest
import typer

from torchyard.cli.sweeps.values import point_of, varied


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("lr=1e-4,1e-3,0.01", [1e-4, 1e-3, 0.01]),
        ("seed=1..5", "1..5"),
        ("seed=-2..2", "-2..2"),
        ("model=resnet18,timm/vit_tiny", ["resnet18", "timm/vit_tiny"]),
        ("amp=true,false,null", [True, False, None]),
        ("batch=32", [32]),
        ("code=007,1.5.2,1_0", ["007", "1.5.2", "1_0"]),
        ("value=nan,inf,1e999", ["nan", "inf", "1e999"]),
        ("folder=../a,../b", ["../a", "../b"]),
        ("query=a=b", ["a=b"]),
        ("lr=1e-5..1e-1:log", {"min": 1e-5, "max": 0.1, "log": True}),
        ("drop=0.0..0.5:step=0.1", {"min": 0.0, "max": 0.5, "step": 0.1}),
        ("width=16..256:log", {"min": 16, "max": 256, "integer": True, "log": True}),
        ('betas=[[0.9, 0.99], [0.8, 0.9]]', [[0.9, 0.99], [0.8, 0.9]]),
        ('name=["a,b", ""]', ["a,b", ""]),
        ('lr={"min": 0, "max": 1}', {"min": 0, "max": 1}),
    ],
)  # fmt: skip
def test_values_are_read_as_a_spec_has_them(text: str, values: Any) -> None:
    found = varied(text)
    assert found == (text.partition("=")[0], values)
    assert repr(found[1]) == repr(values)  # 1 is not True, nor 1.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lr", "not complete"),
        ("lr=", "not complete"),
        ("=1,2", "not complete"),
        ("lr=1,,2", "empty value"),
        ("lr=[1, 2", "not JSON"),
        ("lr=1..5:logg", "ends with :logg: a range may have :log or :step=NUMBER"),
        ("lr=1..5:step", "ends with :step"),
    ],
)
def test_what_is_wrong_is_refused_with_how_it_is_written(text: str, said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        varied(text)


def test_deep_json_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="not JSON"):
        varied(f"lr={'[' * 100_000}")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("x=1e-4,0.10,1e3,1.5,7", ["1e-4", "0.10", "1e3", 1.5, 7]),
        ("x=-0,007,True,true,null", ["-0", "007", "True", True, None]),
        ("x=[1,2],[3,4]", ["[1,2]", "[3,4]"]),
        ("x=(0.9,0.99),(0.8,0.9)", ["(0.9,0.99)", "(0.8,0.9)"]),
        ("x=[[1,2],[3,4]]", ["[1,2]", "[3,4]"]),
        ('x=["a,b", "", 1e3, true]', ["a,b", "", "1e3", True]),
        ("x=it's, 0.5", ["it's", 0.5]),
        ("x=1..3", "1..3"),
    ],
)
def test_the_values_of_an_argument_stay_as_they_were_typed(text: str, values: Any) -> None:
    found = varied(text, as_typed=True)[1]
    assert found == values and repr(found) == repr(values)


@pytest.mark.parametrize("text", ["x='a,b',c", 'x="a"', "x=1..3,9"])
def test_what_may_mean_two_things_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="write"):
        varied(text, as_typed=True)


def test_a_range_has_steps_of_a_fraction_between_whole_numbers() -> None:
    assert varied("x=0..1:step=0.25")[1] == {"min": 0, "max": 1, "step": 0.25}
    assert varied("x=0..9:step=3")[1] == {"min": 0, "max": 9, "step": 3, "integer": True}


def test_a_point_keeps_what_was_typed_of_an_argument() -> None:
    found = point_of("lr=1e3,env.A=1e3,size=[1,2]", as_typed=lambda key: not key.startswith("env."))
    assert found == {"lr": "1e3", "env.A": 1000.0, "size": "[1,2]"}
