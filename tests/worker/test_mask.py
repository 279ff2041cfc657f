"""What is masked in text that a job has written."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.states import EndReason
from worker.host.mask import MASK, Mask

_PART = st.text("ab", min_size=8, max_size=14)


@pytest.mark.parametrize(
    ("values", "text", "masked"),
    [
        (["hunter2hunter2"], "key=hunter2hunter2;", "key=***;"),
        (["short"], "short", "short"),
        (["aaaaaaaa", "aaaaaaaabbbb"], "aaaaaaaabbbb", "***"),
        (["first-line\nsecond-line"], "it is second-line", "it is ***"),
        (["a.b*c(d)e"], "a.b*c(d)e aXb*c(d)e", "*** aXb*c(d)e"),
        (["hunter2hunter2"], "x hunter2hun … [12 bytes cut]", "x *** … [12 bytes cut]"),
        (["hunter2hunter2"], "x hun … [12 bytes cut]", "x hun … [12 bytes cut]"),
        ([], "anything", "anything"),
    ],
)
def test_values_are_replaced_in_text(values: list[str], text: str, masked: str) -> None:
    assert Mask(values).text(text) == masked


def test_a_value_of_many_lines_is_masked_line_by_line() -> None:
    """Such as a user could bring to hold the worker: each line begins as others do."""
    mask = Mask(["\n".join(f"the-line-{number}" for number in range(3000)), "the-line-1234-and-more"])
    assert mask.text("a the-line-1234-and-more, the-line-2999; the-line-") == "a ***, ***; the-line-"
    assert mask.text("the-lin the_line-1") == "the-lin the_line-1"


@pytest.mark.parametrize(
    ("message", "masked"),
    [
        ("ValueError: 0123456789abc", "ValueError: ***"),
        ("789abcdefghij\nnext", "***\nnext"),
        ("first\n…\nghij rest", "first\n…\n*** rest"),
        ("456789abcdef", "***"),
        ("ends with 012", "ends with 012"),
    ],
)
def test_a_value_that_was_cut_in_a_report_is_masked(message: str, masked: str) -> None:
    report = ExitReport(reason=EndReason.USER_ERROR, message=message, traceback=message)
    found = Mask(["0123456789abcdefghij"]).report(report)
    assert (found.message, found.traceback) == (masked, masked)


def test_a_report_is_masked() -> None:
    report = ExitReport(reason=EndReason.USER_ERROR, message="bad hunter2hunter2", traceback="in hunter2hunter2")
    masked = Mask(["hunter2hunter2"]).report(report)
    assert (masked.message, masked.traceback, masked.reason) == ("bad ***", "in ***", EndReason.USER_ERROR)


def test_many_short_texts_are_masked_at_once_whatever_the_lines_of_a_secret() -> None:
    mask = Mask(["\n".join(f"{number:07}-line" for number in range(5000))])
    cells = [f"{number} cells" for number in range(2_000)]
    assert [mask.quoted(cell) for cell in cells] == cells
    assert mask.quoted("\n".join([*cells, "00-line of", "a 0001234-"])).split("\n")[-2:] == ["*** of", "a ***"]


@given(st.lists(_PART, min_size=1, max_size=60), st.lists(_PART, max_size=6))
def test_whatever_is_masked_one_by_one_is_masked_among_many(values: list[str], pieces: list[str]) -> None:
    text = "".join(pieces)
    alone, many = Mask(values[:1]), Mask([*values, *(f"{number:08}other" for number in range(40))])
    assert (values[0] in many.text(text)) is False
    for quoted, wanted in ((alone.quoted(text), many.quoted(text)), (alone.text(text), many.text(text))):
        assert len(wanted.replace(MASK, "")) <= len(quoted.replace(MASK, ""))
    assert many.finds(text) == any(value in text for value in values)
    assert Mask(["another secret"]).quoted(text) == text
