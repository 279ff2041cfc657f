"""How the values of `--sweep` are written, by what the source of the program declares."""

from pathlib import Path
from typing import Any

import pytest
import typer

from torchyard.cli.declared.reading import declared
from torchyard.cli.sweeps.argv import argv
from torchyard.cli.sweeps.options import sweep_of
from torchyard.contract.spec.maximums import Maximums
from torchyard.contract.sweeps.points import known_point, resolved, spec_of
from torchyard.contract.sweeps.spec import parse_sweep

SOURCE = """\
import argparse
p = argparse.ArgumentParser()
p.add_argument("--augment", action=argparse.BooleanOptionalAction)
p.add_argument("--amp", action="store_true")
p.add_argument("-b", "--batch-size", type=int)
p.add_argument("--fp16", type=str2bool)
p.add_argument("--bad", type=bool)
p.add_argument("--epochs", type=int)
p.add_argument("--betas", type=float, nargs=2)
p.add_argument("--files", nargs="+")
p.add_argument("-lr", type=float)
"""
COMMANDS = """\
import argparse
p = argparse.ArgumentParser()
p.add_argument("--seed", type=int)
s = p.add_subparsers()
t = s.add_parser("train")
t.add_argument("--lr", type=float)
"""
HYDRA = "import hydra\n@hydra.main()\ndef main(cfg): ...\n"
FIRE = "import fire\nfire.Fire()\n"


def arguments(
    folder: Path, source: str, *sweeps: str, args: str = "", bools: tuple[str, ...] = (), style: str | None = None
) -> list[str]:
    """Returns the command line of each trial."""
    (folder / "train.py").write_text(source)
    job = {"trainer": "script", "config": {"entrypoint": "train.py", "args": args.split()}}
    more: dict[str, Any] = {"sweep_bool": bools, "sweep_style": style}
    read = lambda: declared(folder, "train.py")  # noqa: E731
    asked = sweep_of(job, sweep=sweeps, array=None, more=more, declared=read)
    assert asked is not None
    asked.spec["job"]["config"]["code"] = "file:///code"
    known, _ = resolved(parse_sweep(asked.spec), visibility="private", maximums=Maximums())
    points = [known_point(known, number) or {} for number in range(known.size)]
    return [" ".join(argv(spec_of(known, number, point))[1:]) for number, point in enumerate(points)]


@pytest.mark.parametrize(
    ("sweeps", "args", "trials"),
    [
        (["augment=true,false"], "", ["--augment", "--no-augment"]),
        (["augment=true,false"], "--no-augment in.csv", ["--augment in.csv", "--no-augment in.csv"]),
        (["amp=True,False"], "--amp", ["--amp", ""]),
        (["fp16=true,false"], "--fp16 false", ["--fp16 true", "--fp16 false"]),
        (["unknown=true,false"], "", ["--unknown true", "--unknown false"]),
        (["batch_size=1,2"], "-b 32 in.csv", ["--batch-size 1 in.csv", "--batch-size 2 in.csv"]),
        (["b=1"], "--batch-size=32", ["-b=1"]),
        (["betas=[0.9,0.99],[0.8,0.9]"], "--betas 1 2 x", ["--betas 0.9 0.99 x", "--betas 0.8 0.9 x"]),
        (["files=[\"a\"]"], "--files x y --amp", ["--files a --amp"]),
        (["lr=1e-4,1e3"], "", ["-lr 1e-4", "-lr 1e3"]),
        (["bad=[\"1\", \"\"]"], "", ["--bad 1", "--bad "]),
        (["size=[1,2],[3,4]"], "", ["--size [1,2]", "--size [3,4]"]),
        (["drop=0..1:step=0.5"], "", ["--drop 0.0", "--drop 0.5", "--drop 1.0"]),
        (["lr=1,2"], "--out run-{lr}", ["--out run-1", "--out run-2"]),
    ],
)  # fmt: skip
def test_values_are_written_as_the_program_declares_the_option(
    tmp_path: Path, sweeps: list[str], args: str, trials: list[str]
) -> None:
    assert arguments(tmp_path, SOURCE, *sweeps, args=args) == trials


def test_an_option_of_the_program_stands_before_the_sub_command(tmp_path: Path) -> None:
    found = arguments(tmp_path, COMMANDS, "seed=1,2", "lr=0.1", args="train")
    assert found == ["--seed 1 train --lr 0.1", "--seed 2 train --lr 0.1"]
    assert arguments(tmp_path, COMMANDS, "seed=1..2", args="--seed 9 train") == ["--seed 1 train", "--seed 2 train"]


def test_hydra_takes_keys_that_look_like_those_of_a_spec(tmp_path: Path) -> None:
    assert arguments(tmp_path, HYDRA, "trainer.gpus=1,2") == ["trainer.gpus=1", "trainer.gpus=2"]
    assert arguments(tmp_path, "", "opt.lr=0.1", style="hydra", args="+opt.lr=1") == ["+opt.lr=0.1"]
    assert arguments(tmp_path, HYDRA, "lr=1", style="equals") == ["--lr=1"]


@pytest.mark.parametrize(
    ("how", "trials"),
    [("flag", ["--x", ""]), ("no-flag", ["--x", "--no-x"]), ("value", ["--x true", "--x false"])],
)
def test_an_option_says_how_truths_are_written(tmp_path: Path, how: str, trials: list[str]) -> None:
    assert arguments(tmp_path, "", "x=true,false", bools=(f"x={how}",)) == trials


@pytest.mark.parametrize(
    ("source", "sweep", "more", "said"),
    [
        (SOURCE, "bad=true,false", {}, r"""train.py, line 7: bad has type=bool.*write bad='\["true", ""\]'"""),
        (SOURCE, "bad=0,1", {}, "type=bool"),
        (SOURCE, "epochs=true", {}, "has type=int: write 1,0"),
        (SOURCE, "amp=1,2", {}, "amp is a flag without a value: write amp=true,false"),
        (SOURCE, "no-augment=true,false", {}, "no-augment switches augment off"),
        (FIRE, "x=true,false", {}, "write x=True,False"),
        ("", "x=1", {"bools": ("y=flag",)}, "--sweep-bool y names no argument that varies"),
        ("", "x=1", {"bools": ("x=on",)}, "write KEY=flag"),
        ("", "x=1", {"bools": ("x=flag",), "args": "{x}"}, "stands for its values"),
        ("", "x='a,b',c", {}, r'write the values as a list in JSON, x=\["a,b"'),
        ("", "x=1..3,10", {}, "a range beside other values"),
    ],
)
def test_what_the_program_would_take_otherwise_is_refused(
    tmp_path: Path, source: str, sweep: str, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        arguments(tmp_path, source, sweep, **more)


def test_an_option_that_is_declared_in_two_ways_is_asked_for(tmp_path: Path) -> None:
    twice = "a.add_argument('--x', action='store_true')\nb.add_argument('--x')\n"
    with pytest.raises(typer.BadParameter, match="declare x differently"):
        arguments(tmp_path, twice, "x=true,false")
    assert arguments(tmp_path, twice, "x=true,false", bools=("x=flag",)) == ["--x", ""]
