from datetime import UTC, datetime, timedelta

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


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 * 2**40, "3.0 TiB"), (2**60, "1048576.0 TiB")],
)
def test_sizes_are_shown_in_a_unit_that_fits(count: int, text: str) -> None:
    assert terminal.size(count) == text


def test_a_table_is_aligned_and_has_no_control_characters() -> None:
    lines = output.table(("A", "LONGER", "C"), [("x\x1b[31mx", "1\n", "end"), ("y", "22", "")])
    assert lines == ["A   LONGER  C", "xx  1       end", "y   22"]
