"""Reads scikit-learn's handwritten digits without importing it, which would take longer than training on them."""

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
    """Returns 1,797 pictures as rows of 64 values of 0…16, and the digit of each. Raises DataError."""
    path = _installed() / _FILE
    try:
        rows = np.loadtxt(path, delimiter=",")
    except FileNotFoundError:
        raise DataError(f"digits: the installed scikit-learn has no {_FILE}: reinstall it") from None
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise DataError(f"digits: {path} cannot be read, reinstall scikit-learn: {error}") from error
    if rows.ndim != 2 or rows.shape[1] != PIXELS + 1:
        raise DataError(f"digits: {path} has the shape {rows.shape}: reinstall scikit-learn")
    return rows[:, :PIXELS], rows[:, PIXELS].astype(np.int64)


def _installed() -> Path:
    """Returns the folder of scikit-learn, without importing it."""
    package = importlib.util.find_spec("sklearn")
    folders: list[Any] = list(package.submodule_search_locations or ()) if package else []
    if not folders:
        raise DataError("digits: scikit-learn, which contains them, is not installed in the worker's environment")
    return Path(folders[0])
