"""`torchyard help` shows the pages of the documentation and the help of commands, and needs no service."""

from pathlib import Path
import re
import shutil

import pytest

from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.cli.terminal import in_terminal
from torchyard.cli.commands import COMMANDS
from torchyard.cli.topics import topics

DOCS = Path(__file__).parents[3] / "docs"
ALONE = environment(None, "")


def test_every_page_of_the_documentation_is_a_topic_in_the_list() -> None:
    pages = {path for folder in ("", "reference", "operating") for path in (DOCS / folder).glob("*.md")}
    assert {topic.path.resolve() for topic in topics().values()} == pages - {DOCS / "README.md"}
    done = run_in_process(["help"], ALONE)
    first = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")}
    assert done.returncode == 0 and {*topics(), *COMMANDS} <= first


def test_a_pipe_gets_the_text_of_each_page_without_links() -> None:
    for name, topic in topics().items():
        done = run_in_process(["help", name], ALONE)
        assert done.returncode == 0 and done.stdout.startswith(f"# {topic.title}\n"), name
        assert re.search(r"\]\([^)]*\.md|!\[", done.stdout) is None, name


def test_a_page_names_the_pages_that_it_links_to() -> None:
    last = run_in_process(["help", "reference"], ALONE).stdout.splitlines()[-1]
    assert last.startswith("See also: ") and "`torchyard help commands`" in last


@pytest.mark.skipif(shutil.which("cat") is None, reason="needs cat")
def test_a_terminal_shows_a_page_in_the_pager() -> None:
    code, screen = in_terminal(["help", "concepts"], {**ALONE, "PAGER": "echo paged; cat", "TERM": "xterm"})
    assert code == 0 and "paged" in screen
    assert "\x1b[" in screen and "# Concepts" not in screen


@pytest.mark.parametrize(("words", "near"), [("swep", "`sweep` or `sweeps`"), ("gpu", "`gpus`"), ("slrum", "`slurm`")])
def test_an_unknown_topic_suggests_near_ones(words: str, near: str) -> None:
    done = run_in_process(["help", words], ALONE)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"unknown topic {words!r}; did you mean {near}?" in done.stderr


def test_a_name_of_a_command_and_of_a_page_leads_to_both() -> None:
    page, command = (run_in_process(["help", name], ALONE).stdout for name in ("models", "queue"))
    assert page.startswith("# ") and "`torchyard models --help`" in page
    assert command.startswith("Usage: torchyard queue ") and "`torchyard help operating/queue`" in command
