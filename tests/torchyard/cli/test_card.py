"""How model cards are shown, also with unexpected values."""

import pytest

from torchyard.cli.card import card_lines


def shown(**card: object) -> dict[str, str]:
    """Returns the text beside each label."""
    _, *lines = card_lines(card)  # pyright: ignore[reportArgumentType] - JSON, all of it
    width = max(len(key.removesuffix("_bytes")) for key in card)
    return {line[:width].rstrip(): line[width:].strip() for line in lines}


@pytest.mark.parametrize(
    ("key", "value", "label", "text"),
    [
        ("parameters", 62, "parameters", "62"),
        ("trainable_parameters", 1_234_567, "trainable parameters", "1.23 M"),
        ("parameters", 999_600, "parameters", "1 M"),
        ("parameters", 125_000_000_000, "parameters", "125 G"),
        ("flops_per_sample", 3_410_000_000, "FLOPs per sample", "3.41 GFLOPs"),
        ("flops_per_sample", 12, "FLOPs per sample", "12 FLOPs"),
        ("peak_memory_bytes", 3 * 2**30, "peak memory", "3.0 GiB"),
        ("data_hash", "0123456789abcdef" * 4, "data hash", "0123456789ab"),
        ("samples_per_second", 5120.4321, "samples per second", "5,120"),
        ("versions", {"torch": "2.14.1", "cuda": None}, "versions", "torch 2.14.1"),
        ("compiled", True, "compiled", "yes"),
        ("sizes", [1, 2.5], "sizes", "1, 2.5"),
        ("spec", {"model": {"name": "x"}, "seed": 1}, "spec", "2 entries"),
        ("many", list(range(50)), "many", "50 entries"),
        ("speed", "NaN", "speed", "NaN"),
        ("big_bytes", 10**400, "big", "1" + "0" * 400),
        ("small", -1e-9, "small", "-1e-9"),
        ("text", "a\x1b[31m\nb", "text", "a b"),
    ],
)
def test_a_value_is_shown_in_its_unit(key: str, value: object, label: str, text: str) -> None:
    assert shown(**{key: value}) == {label: text}


def test_known_keys_come_first_and_null_values_are_omitted() -> None:
    lines = card_lines({"b": 1, "precision": "bf16", "a": 2, "parameters": 3, "flops_per_sample": None})
    assert lines == ["MODEL CARD", "parameters  3", "precision   bf16", "a           2", "b           1"]
