"""Commands of the README and of two pages, as they stand there but for the port; those of all pages are only read."""

from itertools import takewhile
from pathlib import Path
import re
import sys

import pytest

from tests.e2e.documented import ROOT, blocks, commands_in, environment_in, run_blocks, running_by, started_by
from tests.e2e.service import Service
from tests.servers import free_port
from tests.torchyard.cli.reading import commands, read

README = (ROOT / "README.md").read_text()
FIRST_HOUR = (ROOT / "docs" / "first-hour.md").read_text()
COMMANDS = (ROOT / "docs" / "reference" / "commands.md").read_text()
DOCUMENTS = [README, *(path.read_text() for path in (ROOT / "docs").rglob("*.md"))]
NOT_RUN = {
    "make demo": "its installation and `make up` go on for long: what make starts is run",
    "export PATH": "docs/first-hour.md has it, too, and its first blocks run here",
}
"""Blocks of the README by how they begin, and why they do not run here."""
PROGRAM = """
import os
from pathlib import Path
if os.environ["RANK"] == "0":
    artifacts = Path(os.environ["TORCHYARD_RUN_DIR"], "artifacts")
    stored = [artifacts / name for name in ("report.json", "loss.png", "plots/loss.png")]
    for file in (Path("out/model.pt"), Path("results/table.csv"), *stored):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with the commands in `.venv`. The first hour works in another one beside it, which has a program."""
    folder = tmp_path / "clone"
    folder.mkdir()
    (folder / ".venv").symlink_to(sys.prefix)
    (tmp_path / "train.py").write_text(PROGRAM)
    return folder


@pytest.mark.parametrize("databases", ["sqlite"], ids=[pytest.HIDDEN_PARAM], indirect=True, scope="session")
def test_the_commands_of_the_readme_do_what_it_says(clone: Path, shared_service: Service) -> None:
    """Runs them on the shared service of tests/e2e, which was started by the command of `make up`."""
    port = int(shared_service.server["url"].rpartition(":")[2])
    (clone / ".torchyard").symlink_to(shared_service.data)
    shown = [*_first_blocks(port), *_run(blocks(README, "sh"))]
    run_blocks([started_by("demo"), *shown, _block("torchyard wait")], clone, environment_in(clone.parent))
    assert [*(clone.parent / "circle").glob("*.pt")] != []


@pytest.mark.thorough
def test_the_commands_that_copy_and_keep_checkpoints_do_what_their_page_says(clone: Path) -> None:
    """After the first job of the first hour, and that of one's own code."""
    port, folder, environment = free_port(), clone.parent / "circle", environment_in(clone.parent)
    with running_by(f"torchyard up --port {port}", clone, environment):
        run_blocks([*_first_blocks(port), *_run(blocks(README, "sh"))], clone, environment)
        captured = run_blocks(["torchyard checkpoints circle"], folder, environment)
        run_blocks([_of_programs_job(_block("torchyard cp"), "circle")], folder, environment)
        kept = run_blocks([_block("torchyard models")], folder, environment)
    assert "latest" in captured
    assert "admin/digits@2" in kept and kept.endswith("admin/digits@1  deleted\n")
    assert {"loss.png", "model.safetensors", "out/loss.png", "results/table.csv"} <= {
        str(path.relative_to(folder)) for pattern in ("*", "out/*", "results/*") for path in folder.glob(pattern)
    }


def test_each_block_that_does_not_run_is_in_the_readme() -> None:
    found = blocks(README, "sh")
    for beginning in NOT_RUN:
        assert any(block.startswith(beginning) for block in found), beginning
    assert len(_run(found)) == len(found) - len(NOT_RUN)


def test_the_list_of_commands_is_whole() -> None:
    documented = {match for row in _rows() for match in _commands(row)}
    assert documented == {*commands()}


def test_the_listed_options_are_those_of_their_commands() -> None:
    usages = [code for row in _rows() for code in _codes(row)]
    for usage in usages:
        (name,) = _commands(f"`{usage}`")
        assert _options(usage) <= _options_of(name), usage
    assert len(usages) > 60


def test_the_command_line_reads_each_command_of_the_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for entry in ROOT.iterdir():  # some name files of the tree, and others a folder of their reader's
        (tmp_path / entry.name).symlink_to(entry)
    (tmp_path / "data" / "mnist").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    calls = [
        call for text in DOCUMENTS for block in blocks(text, "(?:sh|bash)") for call in commands_in(block, "torchyard")
    ]
    for call in calls:
        read(call)
    assert len(calls) > 40


def test_a_command_in_the_text_of_the_documents_is_one_with_such_options() -> None:
    usages = [code for text in DOCUMENTS for code in re.findall(r"`torchyard\s+([a-z][^`]*)`", text)]
    for usage in (" ".join(code.split()) for code in usages):
        found = [name for name in commands() if f"{usage} ".startswith(f"{name} ")]
        assert found, usage
        assert _options(usage) <= _options_of(found[0]), usage


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("FOO=1 torchyard submit --folow x.yaml > out", "No such option"),
        ("for a in b; do .venv/bin/torchyard run $a; torchyard shwo x; done", "unknown command"),
        ("echo torchyard shwo | torchyard \\\n    show", "Missing parameter"),
        ("torchyard drain", "Missing parameter"),
        ("torchyard servers x    # torchyard shwo", "unexpected extra argument"),
    ],
)
def test_a_wrong_command_in_a_document_is_found(line: str, wrong: str) -> None:
    with pytest.raises(Exception, match=wrong):
        for arguments in commands_in(line, "torchyard"):
            read(arguments)


def _run(found: list[str]) -> list[str]:
    return [block for block in found if not block.startswith(tuple(NOT_RUN))]


def _first_blocks(port: int) -> list[str]:
    """Returns the blocks of the first hour that log in, make a folder and train there, and one that adds a program."""
    log_in, submit = (block.replace("8000", str(port)) for block in blocks(FIRST_HOUR, "sh")[1:3])
    return [log_in, submit, "cp ../train.py ."]


def _block(beginning: str) -> str:
    """Returns the block of docs/reference/commands.md that begins so."""
    return next(block for block in blocks(COMMANDS, "sh") if block.startswith(beginning))


def _of_programs_job(block: str, name: str) -> str:
    """Names the job that left artifacts, and a reader of JSON that is there for certain."""
    return re.sub(r"digits:(artifacts|results)", rf"{name}:\1", block).replace("jq .", "python -m json.tool")


def _rows() -> list[str]:
    """Returns the first cells of the tables of commands in docs/reference/commands.md."""
    tables = [rest.partition("\n\n")[0] for rest in COMMANDS.split("| command | what it does |\n")[1:]]
    return [row.split(" | ")[0] for table in tables for row in table.splitlines()[1:]]


def _codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


def _options(usage: str) -> set[str]:
    """Returns the options that follow a command; what follows the program of `run` are its own."""
    words = usage.translate(str.maketrans("[]|\\", "    ")).split()
    own = list(takewhile(lambda word: not word.endswith(".py") and word != "--", words))
    return {word.partition("=")[0] for word in own if word.startswith("-") and word != "-"}


def _options_of(name: str) -> set[str]:
    found = commands()[name].params
    return {option for parameter in found for option in (*parameter.opts, *parameter.secondary_opts)}


def _commands(cell: str) -> set[str]:
    """Returns the names of the commands in a cell, such as `tokens add` of `tokens add [--name]`."""
    found = (re.match(r"[a-z][a-z-]*( [a-z]+)*", code) for code in re.findall(r"`([^`]*)`", cell))
    return {match.group() for match in found if match}
