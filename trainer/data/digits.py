"""The handwritten digits that ship with scikit-learn, read without it: its import takes longer than their training."""

import importlib.util
from pathlib import Path
from typing import Any
import zlib

import numpy as np
from numpy.typing import NDArray

from torchyard.contract.errors import DataError

PIXELS = 64

_FILE = Path("datasets", "data", "digits.csv.gz")


def read_digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """1,797 pictures as rows of 64 values of 0…16, and the digit that each shows. Raises DataError."""
    path = _installed() / _FILE
    try:
        rows = np.loadtxt(path, delimiter=",")
    except FileNotFoundError:
        raise DataError(f"digits: the installed scikit-learn has no {_FILE}: install it anew") from None
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise DataError(f"digits: {path} cannot be read, install scikit-learn anew: {error}") from error
    if rows.ndim != 2 or rows.shape[1] != PIXELS + 1:
        raise DataError(f"digits: {path} has the shape {rows.shape}: install scikit-learn anew")
    return rows[:, :PIXELS], rows[:, PIXELS].astype(np.int64)


def _installed() -> Path:
    """Where scikit-learn is. Only looked for, not imported."""
    found = importlib.util.find_spec("sklearn")
    places: list[Any] = list(found.submodule_search_locations or ()) if found else []
    if not places:
        raise DataError("digits: they come with scikit-learn, which is not installed beside this worker")
    return Path(places[0])
