from collections.abc import Callable
from datetime import UTC, datetime, timedelta
import io
import json
from pathlib import Path

import pytest

from tests.torchyard.cli.invocation import environment, run_in_process
from torchyard.cli import output
from torchyard.host import terminal


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 m 0 s"),
        (200, "3 m 20 s"),
        (7500, "2 h 5 m"),
        (86_399, "23 h 59 m"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations_are_shown_in_at_most_two_units(seconds: float, text: str) -> None:
    assert terminal.duration(seconds) == text
    assert terminal.ago(datetime.now(UTC) - timedelta(days=3, hours=4, minutes=5)) == "3 d 4 h ago"


CASES = json.loads((Path(__file__).parents[2] / "numbers.json").read_text())
"""The page's tests read it, too."""


@pytest.mark.parametrize(
    ("kind", "written"),
    [("number", terminal.number), ("setting", terminal.setting), ("scaled", terminal.scaled), ("size", terminal.size)],
)
def test_numbers_and_sizes_are_written_as_on_the_page(kind: str, written: Callable[[float], str]) -> None:
    for value, text in CASES[kind]:
        assert written(float(value) if isinstance(value, str) else value) == text


def test_a_long_line_hangs_below_its_text_in_a_terminal_and_is_whole_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = "advice     " + "reduce the size of the batch " * 5
    assert output.hanging(line) == line
    monkeypatch.setattr(output, "_columns", lambda: 40)
    first, *others = output.hanging(line).splitlines()
    assert first.startswith("advice     reduce") and len(others) == 4
    assert all(each.startswith(" " * 11) and each[11] != " " and len(each) <= 40 for each in others)
    assert " ".join(output.hanging(line).split()) == " ".join(line.split())
    assert output.hanging("digits failed: " + "word " * 20).splitlines()[1].startswith("  word")
    whole = f"id         job_{'0' * 32}"
    assert output.hanging(whole) == whole, "what has no place to break stays beside its label"


def test_help_fits_a_narrow_terminal() -> None:
    for command in ([], ["ps"], ["sweep"], ["sweep", "ls"]):
        shown = run_in_process([*command, "--help"], environment(None, "") | {"COLUMNS": "40"}).stdout
        lines = [line for line in shown.splitlines() if not line.startswith("  torchyard ")]  # examples are whole
        assert len(lines) > 3 and max(map(len, lines)) <= 40


def test_an_explanation_stands_below_its_command_where_a_terminal_is_too_narrow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands = [("torchyard retry digits", "run it again"), ("torchyard logs digits", "its last log lines")]
    assert output.explained(commands)[1] == "torchyard logs digits   its last log lines"
    monkeypatch.setattr(output, "_columns", lambda: 30)
    assert output.explained(commands)[:2] == ["torchyard retry digits", "  run it again"]


def test_colours_are_for_terminals_that_show_them(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert terminal.paint("a", "31", stream) == "\x1b[31ma\x1b[0m"
    assert terminal.paint("a", "31", io.StringIO()) == "a"
    monkeypatch.setenv("TERM", "dumb")
    assert terminal.paint("a", "31", stream) == "a"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal.paint("a", "31", stream) == "a"


def test_a_table_is_aligned_and_has_no_control_characters() -> None:
    lines = output.table(("A", "LONGER", "C"), [("x\x1b[31mx", "1\n", "end"), ("y", "22", "")])
    assert lines == ["A   LONGER  C", "xx  1       end", "y   22"]
