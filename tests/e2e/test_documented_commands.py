"""The commands of the README as they stand there but for the port, and the list of commands in docs/commands.md."""

from pathlib import Path
import re
import sys

from typer.models import CommandInfo

from tests.e2e.documented import blocks, environment_in, run_blocks, running_by
from tests.servers import free_port
from torchyard.cli import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
NOT_RUN = {
    "make demo": "sets up an environment: tests/torchyard/cli/test_up.py runs the demo",
    "torchyard users add alice": "needs a server with TLS: test_first_hour.py runs those of docs/operating.md",
    "make check": "the developers' own commands, which run these tests",
}
"""Blocks of the README by how they begin, and why they do not run here."""
PROGRAM = """
import os
os.makedirs("out", exist_ok=True)
if os.environ["RANK"] == "0":
    open("out/model.pt", "w").write("weights")
"""


def test_the_commands_of_the_readme_do_what_it_says(tmp_path: Path) -> None:
    port, environment = free_port(), environment_in(tmp_path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / ".torchyardignore").write_text("/config/\n/*.pt\n/up.log\n/job.json\n")
    (tmp_path / "train.py").write_text(PROGRAM)
    commands = [_here(block, port) for block in _run(blocks(README, "sh"))]
    program = next(block for block in blocks(README, "python") if block.startswith("from torchyard import Client"))
    with running_by(f"torchyard up --port {port}", tmp_path, environment):
        said = run_blocks([*commands, f"python - <<'END'\n{program}END"], tmp_path, environment)
        captured = run_blocks([f"torchyard checkpoints {tmp_path.name}"], tmp_path, environment)
    assert "val/accuracy" in said
    assert len(list(tmp_path.glob("*.pt"))) >= 2
    assert "latest" in captured


def test_each_block_that_does_not_run_is_in_the_readme() -> None:
    found = blocks(README, "sh")
    for beginning in NOT_RUN:
        assert any(block.startswith(beginning) for block in found), beginning
    assert len(_run(found)) == len(found) - len(NOT_RUN)


def test_the_list_of_commands_is_whole() -> None:
    table = (ROOT / "docs" / "commands.md").read_text().partition("| command | what |")[2].partition("\n\n")[0]
    documented = {match for row in table.splitlines()[2:] for match in _commands(row.split(" | ")[0])}
    assert documented == _every_command()


def _run(found: list[str]) -> list[str]:
    return [block for block in found if not block.startswith(tuple(NOT_RUN))]


def _here(block: str, port: int) -> str:
    """Names the port, and lets `login` read the token for which it would ask."""
    return re.sub(r"(login \S+)", r"\1 --token-stdin < .torchyard/token", block).replace("8000", str(port))


def _commands(cell: str) -> set[str]:
    """Returns the names of the commands in a cell, such as `tokens new` of `tokens new [--name]`."""
    found = (re.match(r"[a-z]+( [a-z]+)*", code) for code in re.findall(r"`([^`]*)`", cell))
    return {match.group() for match in found if match}


def _every_command() -> set[str]:
    inner = {
        f"{group.name} {_name(command)}"
        for group in app.registered_groups
        if group.typer_instance is not None
        for command in group.typer_instance.registered_commands
    }
    return {_name(command) for command in app.registered_commands} | inner


def _name(command: CommandInfo) -> str:
    """Returns the name that a command has, or that its function gives it."""
    return command.name or getattr(command.callback, "__name__", "")
