"""What of a table fits into a terminal."""

from collections.abc import Sequence
import random

import pytest

from tests.torchyard.client.answers import NOW, job
from torchyard.cli import output
from torchyard.cli.columns import fitted
from torchyard.cli.listing import job_lines
from torchyard.contract.jobs.views import JobSummary

WIDTHS = range(40, 201)


def shown_of(cell: str, line: Sequence[str], index: int) -> int:
    """Returns how many characters of a cell are in a line of the table."""
    if index >= len(line):
        return 0
    return len(cell) if line[index] == cell else len(line[index].removesuffix("…"))


@pytest.mark.parametrize("seed", range(20))
def test_no_cell_of_any_table_is_shown_shorter_in_a_wider_terminal(seed: int) -> None:
    chance = random.Random(seed)
    longest = [chance.choice([3, 8, 14, 15, 40, 200]) for _ in range(chance.randint(1, 12))]
    cells = [["x" * chance.randint(1, most) for most in longest] for _ in range(6)]
    assert fitted(cells, sum(longest) + 2 * len(longest)) == cells
    before = [0] * len(longest) * len(cells)
    for width in WIDTHS:
        lines = fitted(cells, width)
        assert max(len("  ".join(line)) for line in lines) <= width
        now = [shown_of(cell, lines[place], index) for place, row in enumerate(cells) for index, cell in enumerate(row)]
        assert all(more >= less for more, less in zip(now, before, strict=True)), width
        before = now


def test_ps_shows_never_less_text_in_a_wider_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [f"job_0192abcdef{number:0>22x}" for number in (0x3F09C1, 0x3F09C2, 7)]
    best = {"metric": "val/accuracy", "value": 0.98331, "step": 4, "checkpoint_id": "ckpt_1", "mode": "max", "epoch": 2}
    reason = {"code": "waits", "message": "needs 8 devices; the largest worker (box-a) has 2 " * 3, "since": NOW}
    listed = [
        job(id=ids[0], name="a" * 30, status_reason=reason),
        job(id=ids[1], state="running", best=best, progress={"epoch": 2, "epochs": 3, "fraction": 0.67}),
        job(id=ids[2], state="succeeded", best=best),
    ]
    jobs = [JobSummary.model_validate(each) for each in listed]
    before = 0
    for width in WIDTHS:
        monkeypatch.setattr(output, "_columns", lambda width=width: width)
        lines = job_lines(jobs)
        text = sum(len(line.replace(" ", "").replace("…", "")) for line in lines)
        assert text >= before and max(map(len, lines)) <= width
        assert "job_…3f09c1" in lines[1] and "queued" in lines[1]
        if width >= 80:
            assert "0.9833" in lines[2] and "epoch 2/3, 67%" in lines[2]
        before = text


def test_a_table_of_a_terminal_has_no_empty_column_and_short_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = f"job_{'3f09c1':0>32}"
    rows = [(whole, "", "digits"), (whole, "", "net")]
    assert output.table(("ID", "NOTE", "NAME"), rows)[1].split() == [whole, "digits"]
    assert "NOTE" in output.table(("ID", "NOTE", "NAME"), rows)[0]
    monkeypatch.setattr(output, "_columns", lambda: 80)
    assert output.table(("ID", "NOTE", "NAME"), rows) == [
        "ID           NAME",
        "job_…3f09c1  digits",
        "job_…3f09c1  net",
    ]
    assert whole in output.table(("ID", "NAME"), [(whole, "a")], short=False)[1]
    assert output.table(("ID", "NAME"), []) == ["ID  NAME"]
