"""The split that a source brings: what is named train, and val, valid or validation."""

from collections.abc import Iterable
from pathlib import Path

from torchyard.contract.errors import DataError

TRAIN, TEST = "train", "test"
VALIDATION = ("val", "valid", "validation")
WORDS = (TRAIN, *VALIDATION, TEST)


def split_names(names: Iterable[str], root: Path) -> tuple[str, str] | None:
    """Returns which name is for training and which for validation. None: there is no split.

    `root`: where they are. Raises DataError for a split that is not whole: `train` and `test` are no two classes.
    """
    by_word = {name.casefold(): name for name in names}
    validation = [by_word[word] for word in VALIDATION if word in by_word]
    if TRAIN not in by_word:
        return None
    if len(validation) > 1:
        raise DataError(f"{root} has {validation[0]} and {validation[1]}: one is for validation, so remove the other")
    if validation:
        return by_word[TRAIN], validation[0]
    if TEST in by_word:
        raise DataError(
            f"{root} has {by_word[TRAIN]} and {by_word[TEST]}, which are no classes, and nothing for validation:"
            f" rename {by_word[TEST]} to val, or take {root / by_word[TRAIN]} as the source, which is then split"
        )
    return None


def left_out(names: Iterable[str], root: Path) -> list[str]:
    """Returns what is to be said about a source with a split: that its test data is not read."""
    return [f"{root / name} is left out: train and val are read" for name in names if name.casefold() == TEST]
