"""What the source of a program says of its options. It is read, and never run."""

import os
from pathlib import Path

import pytest

from torchyard.cli.declared.options import Option
from torchyard.cli.declared.reading import declared

ARGPARSE = """\
import argparse
raise SystemExit("nobody runs this")
p = argparse.ArgumentParser()
p.add_argument("--augment", action=argparse.BooleanOptionalAction)
p.add_argument("--amp", "-a", action="store_true")
p.add_argument("--cache", action="store_true"); p.add_argument("--no-cache", dest="cache", action="store_false")
p.add_argument("--text", type=str2bool, nargs="?", const=True)
p.add_argument("--bad", type=bool)
p.add_argument("--betas", type=float, nargs=2)
p.add_argument("--files", nargs="+")
p.add_argument("--learning-rate", type=float)
p.add_argument("--depth", type=int)
p.add_argument("--choice", choices=["True", "False"])
p.add_argument("--odd", **more)
p.add_argument("input")
"""
CLICK = """\
import click
@click.command()
@click.option("--augment/--no-augment", default=True)
@click.option("--amp", is_flag=True)
@click.option("--loud/--quiet")
@click.option("--lr", "rate", type=float)
def main(augment, amp, loud, rate): ...
"""
TYPER = """\
from typing import Annotated
import typer
app = typer.Typer()
@app.command()
def main(
    name: str, augment: bool = True, amp: Annotated[bool, typer.Option("--amp")] = False,
    use_ema: Annotated[bool, typer.Option()] = False, lr: float = 0.1,
    old: bool = typer.Option(False, "--old/--no-old"),
): ...
"""
TYRO = """\
from dataclasses import dataclass
import tyro
@dataclass
class Args:
    track: bool
    use_ema: bool = False
    lr: float = 0.1
args = tyro.cli(Args)
"""


def read(folder: Path, source: str, **others: str) -> dict[str, Option]:
    (folder / "train.py").write_text(source)
    for name, text in others.items():
        (folder / f"{name}.py").write_text(text)
    found = declared(folder, "train.py")
    return {name.lstrip("-"): option for option in found.options for name in option.names}


def kinds(found: dict[str, Option]) -> dict[str, str]:
    return {name: option.kind for name, option in found.items()}


def test_options_of_argparse_are_read(tmp_path: Path) -> None:
    found = read(tmp_path, ARGPARSE)
    assert kinds(found) == {
        "augment": "no-flag",
        "amp": "flag",
        "a": "flag",
        "cache": "no-flag",
        "no-cache": "flag",
        "text": "value",
        "bad": "value",
        "betas": "words",
        "files": "words",
        "learning-rate": "value",
        "depth": "value",
        "choice": "value",
    }
    assert [name for name, option in found.items() if option.is_bool_type] == ["bad"]
    assert {name for name, option in found.items() if option.no_truths} == {"betas", "learning-rate", "depth", "choice"}
    assert (found["betas"].words, found["files"].words, found["text"].where) == (2, None, "train.py, line 7")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (CLICK, {"augment": "no-flag", "amp": "flag", "loud": "value", "lr": "value"}),
        (TYPER, {"augment": "no-flag", "amp": "flag", "use-ema": "no-flag", "lr": "value", "old": "no-flag"}),
        (TYRO, {"track": "value", "use-ema": "no-flag", "lr": "value"}),
        ("from absl import flags\nflags.DEFINE_boolean('augment', True, 'x')\n", {"augment": "equals"}),
        ("def broken(:", {}),
        ("print('no options')", {}),
    ],
)
def test_options_of_other_libraries_are_read(tmp_path: Path, source: str, expected: dict[str, str]) -> None:
    assert kinds(read(tmp_path, source)) == expected


@pytest.mark.parametrize(
    "line", ["from options import add", "import options", "from . import options", "import pkg.more"]
)
def test_options_of_a_module_of_the_folder_are_read(tmp_path: Path, line: str) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "more.py").write_text("from options import add\n")
    options = "def add(parser):\n    parser.add_argument('--augment', action='store_true')\n"
    found = read(tmp_path, f"{line}\nimport torch\n", options=options)
    assert {name: option.where for name, option in found.items()} == {"augment": "options.py, line 2"}


def test_an_option_is_that_of_the_sub_command(tmp_path: Path) -> None:
    source = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--seed')\nsub = p.add_subparsers()\n"
        "t = sub.add_parser('train')\nt.add_argument('--augment', action='store_true')\n"
        "e = sub.add_parser('eval')\ne.add_argument('--augment', type=str)\n"
    )
    (tmp_path / "train.py").write_text(source)
    found = declared(tmp_path, "train.py")
    assert found.commands == {"train", "eval"}
    assert [option.kind for option in found.find("augment", ["train"])] == ["flag"]
    assert [option.kind for option in found.find("augment", ["--seed", "1", "eval"])] == ["value"]
    assert [option.parser for option in found.find("seed", ["train"])] == [""]


@pytest.mark.parametrize(
    ("source", "library"),
    [
        ("import hydra\n@hydra.main(config_path='conf')\ndef main(cfg): ...\n", "hydra"),
        ("from omegaconf import OmegaConf\nc = OmegaConf.from_cli()\n", "hydra"),
        ("import fire\nfire.Fire(main)\n", "fire"),
        ("import argparse\n", None),
    ],
)
def test_a_library_that_reads_all_arguments_is_known(tmp_path: Path, source: str, library: str | None) -> None:
    (tmp_path / "train.py").write_text(source)
    assert declared(tmp_path, "train.py").library == library


def test_a_program_that_is_not_there_declares_nothing(tmp_path: Path) -> None:
    assert not declared(tmp_path, None).options and not declared(tmp_path, "gone.py").options


def test_a_module_that_imports_itself_is_read_once(tmp_path: Path) -> None:
    found = read(tmp_path, "import train\nimport other\n", other="import train\nx.add_argument('--a')\n")
    assert [*found] == ["a"]


@pytest.mark.parametrize(
    "odd",
    [
        f"import {'a' * 300}",
        f"x{'.a' * 900} = f()",
        f"x{'.a()' * 300}",
        f"p.add_argument('--x', type={'+'.join('1' * 900)})",
    ],
    ids=["long name", "deep name", "deep calls", "deep type"],
)
def test_odd_code_beside_the_options_stops_nothing(tmp_path: Path, odd: str) -> None:
    assert read(tmp_path, f"{ARGPARSE}{odd}\n")["augment"].kind == "no-flag"


def test_a_pipe_in_place_of_the_program_declares_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.py")
    assert declared(tmp_path, "train.py").options == []
