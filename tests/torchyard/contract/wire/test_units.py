"""Sizes as people write them."""

import json
from pathlib import Path

import pytest

from torchyard.contract.wire.units import parse_size

CASES = json.loads((Path(__file__).parents[3] / "numbers.json").read_text())["read size"]
"""The page's tests read it, too."""


@pytest.mark.parametrize(("text", "count"), CASES)
def test_a_prefix_is_decimal_and_with_an_i_binary(text: str, count: int | None) -> None:
    if count is not None:
        assert parse_size(text) == count
        return
    with pytest.raises(ValueError, match="200MiB, 200MB"):
        parse_size(text)
