from collections.abc import Callable
from datetime import UTC, datetime, timedelta
import json
from pathlib import Path

import pytest

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


def test_a_table_is_aligned_and_has_no_control_characters() -> None:
    lines = output.table(("A", "LONGER", "C"), [("x\x1b[31mx", "1\n", "end"), ("y", "22", "")])
    assert lines == ["A   LONGER  C", "xx  1       end", "y   22"]
