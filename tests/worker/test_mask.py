"""What is masked in text that a job has written."""

import pytest

from torchyard.contract.job import EndReason
from torchyard.contract.records import ExitReport
from worker.host.mask import Mask


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
