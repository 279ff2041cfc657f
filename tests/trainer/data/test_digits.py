"""The digits equal scikit-learn's arrays, and are read without importing it."""

import gzip
import importlib
from pathlib import Path
import subprocess
import sys

import pytest

from tests.approved import Approved
from torchyard.contract.errors import DataError
from trainer.data.digits import read_digits


@pytest.mark.thorough
def test_the_digits_are_those_that_scikit_learn_loads() -> None:
    code = """
import sys
from trainer.data.digits import read_digits

pictures, labels = read_digits()
assert "sklearn" not in sys.modules
from sklearn.datasets import load_digits

for ours, theirs in zip((pictures, labels), load_digits(return_X_y=True), strict=True):
    assert (ours.dtype, ours.shape, ours.tobytes()) == (theirs.dtype, theirs.shape, theirs.tobytes())
"""
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


def test_digits_without_scikit_learn_are_a_data_error(monkeypatch: pytest.MonkeyPatch, approved: Approved) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(DataError) as raised:
        read_digits()
    assert str(raised.value) == approved("message")


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"no gzip",
        gzip.compress(b"1,2\n3,4\n"),
    ],
    ids=["absent", "no gzip", "another shape"],
)
def test_digits_of_a_broken_scikit_learn_are_a_data_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, approved: Approved
) -> None:
    folder = tmp_path / "sklearn"
    (folder / "datasets" / "data").mkdir(parents=True)
    (folder / "__init__.py").touch()
    if content is not None:
        (folder / "datasets" / "data" / "digits.csv.gz").write_bytes(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "sklearn", raising=False)
    importlib.invalidate_caches()
    with pytest.raises(DataError) as raised:
        read_digits()
    assert str(raised.value) == approved.of_row("message", tmp_path=tmp_path)
