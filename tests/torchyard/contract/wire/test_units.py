"""Sizes as people write them."""

import pytest

from torchyard.contract.wire.units import parse_size


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("4096", 4096),
        ("4096B", 4096),
        ("200MB", 200_000_000),
        ("200 mb", 200_000_000),
        ("200MiB", 200 * 2**20),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("3GiB", 3 * 2**30),
        ("2TB", 2 * 10**12),
    ],
)
def test_a_prefix_is_decimal_and_with_an_i_binary(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "M", "200M", "1.5GiB", "-1", "1PB", "1MiBs", "9" * 16])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="200MiB, 200MB"):
        parse_size(text)
