from pathlib import Path

import numpy as np
import pytest

from tests.approved import Approved
from torchyard.contract.errors import DataError
from trainer.data.digests import arrays_digest, listing_digest, split_digest


def test_the_digest_of_arrays_depends_on_names_types_shapes_and_values() -> None:
    one = {"x": np.arange(6, dtype=np.uint8), "y": np.array(["cat", "dog"])}
    assert arrays_digest(one) == arrays_digest({"y": one["y"], "x": one["x"].copy()})
    others = [
        {**one, "x": one["x"][::-1]},
        {**one, "x": one["x"].reshape(2, 3)},
        {**one, "x": one["x"].astype(np.int8)},
        {**one, "z": one["x"]},
    ]
    assert len({arrays_digest(arrays) for arrays in [one, *others]}) == 5


def test_the_digest_of_files_depends_on_names_and_sizes_not_on_the_folder(tmp_path: Path, approved: Approved) -> None:
    for root in ("here", "there"):
        for name in ("a/1.png", "b/2.png"):
            path = tmp_path / root / name
            path.parent.mkdir(parents=True)
            path.write_text(name)
    here, there = (sorted((tmp_path / root).rglob("*.png")) for root in ("here", "there"))
    digest = listing_digest(tmp_path / "here", here)
    assert digest == listing_digest(tmp_path / "there", reversed(there))
    here[0].write_text("longer")
    assert listing_digest(tmp_path / "here", here) != digest != listing_digest(tmp_path / "there", there[:1])
    with pytest.raises(DataError) as raised:
        listing_digest(tmp_path, [tmp_path / "gone.png"])
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_the_digest_of_a_split_depends_on_the_split_of_each_sample() -> None:
    digest = split_digest(["a", "b"], ["c"])
    assert digest == split_digest(["b", "a"], ["c"])
    assert digest not in {
        split_digest(["a"], ["b", "c"]),
        split_digest(["c"], ["a", "b"]),
        split_digest(["a", "b"], []),
    }
