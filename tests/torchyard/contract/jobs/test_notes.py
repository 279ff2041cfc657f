"""Notes: what a change may set, and how it is refused."""

import pytest

from tests.approved import Approved
from torchyard.contract.errors import InvalidRequest
from torchyard.contract.jobs.notes import MOST_NOTES_BYTES
from torchyard.contract.jobs.requests import parse_patch

TEXT = "# Why\n\n\t- it diverged at `lr=1`\n- 日本語, ⚙️\n"


def refusal(change: object) -> tuple[str, str]:
    with pytest.raises(InvalidRequest) as refused:
        parse_patch(change)
    (error,) = refused.value.errors
    return error.field, error.message


def test_notes_are_kept_as_they_are_written() -> None:
    assert parse_patch({"notes": TEXT}).notes == TEXT
    assert parse_patch({"notes": "x" * MOST_NOTES_BYTES}).notes == "x" * MOST_NOTES_BYTES


@pytest.mark.parametrize(
    "notes",
    [
        "x" * 1_000_000,
        "本" * 30_000,
        "one\ntwo\x1b[31m",
        "a\r\nb",
        "\x85",
        "\x7f",
        "a\0b",
        "\ud800",
        None,
        ["a"],
    ],
)
def test_other_notes_are_refused_with_what_is_wrong(notes: object, approved: Approved) -> None:
    field, message = refusal({"notes": notes})
    assert field == "notes"
    assert message == approved.of_row("message")
    assert len(message) < 200


def test_the_notes_of_before_are_only_for_new_ones(approved: Approved) -> None:
    assert refusal({"notes_before": "a"})[1] == approved("refusal")
    assert refusal({"notes": "b", "notes_before": None})[0] == "notes_before"
