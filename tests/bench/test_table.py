"""The table of figures: what is printed, and when a target is missed."""

import pytest

from bench import table
from bench.table import Row, percentile


def printed(capsys: pytest.CaptureFixture[str], *rows: Row) -> tuple[list[str], int]:
    """The cells of the last row, and the exit code."""
    with pytest.raises(SystemExit) as left:
        table.main(lambda: rows)
    last = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")][-1]
    return [cell.strip() for cell in last.strip("|").split("|")], int(left.value.code or 0)


def test_a_row_shows_medians_spread_ratio_and_the_met_target(capsys: pytest.CaptureFixture[str]) -> None:
    row = Row("jobs", "/s", [400, 300, 1200], peer="bare", theirs=[800.0], at_least=300)
    assert printed(capsys, row) == (["jobs", "400 /s (300 to 1,200, n=3)", "bare: 800 /s", "0.50", "≥ 300 met"], 0)


@pytest.mark.parametrize(
    "row",
    [
        Row("too few", "/s", [299.0], at_least=300),
        Row("too long", "ms", [1, 101, 102], at_most=100),
        Row("too slow beside its peer", "MB/s", [49], peer="nginx", theirs=[100], ratio_at_least=0.5),
        Row("too long beside its peer", "s", [0.51], peer="torchrun", theirs=[1], at_most=2, ratio_at_most=0.5),
    ],
    ids=lambda row: row.what,
)
def test_one_missed_target_fails_the_run(capsys: pytest.CaptureFixture[str], row: Row) -> None:
    cells, code = printed(capsys, row)
    assert cells[-1].endswith("MISSED")
    _, code_with_others = printed(capsys, row, Row("fine", "s", [1], at_most=2))
    assert (code, code_with_others) == (1, 1)


def test_a_peer_that_is_not_installed_is_reported_and_fails_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    row = Row("a file", "MB/s", [900], peer="nginx is not installed", ratio_at_least=0.5)
    assert printed(capsys, row) == (["a file", "900 MB/s", "nginx is not installed", "", "ratio ≥ 0.5"], 0)


def test_percentiles_lie_between_the_least_and_the_greatest() -> None:
    values = [float(value) for value in range(1, 102)]
    assert (percentile(values, 50), percentile(values, 99)) == (51, 100)
    assert percentile([7.0], 99) == 7
