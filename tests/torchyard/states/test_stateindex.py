"""A state in several files: what is written is read again, and what anyone may have changed is refused."""

from collections.abc import Callable
import io
import json
import math
from pathlib import Path
import tarfile
from typing import Any

import pytest
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
import torch
from torch import Tensor

from tests.approved import Approved
from tests.archives import archive_of
from tests.torchyard.states.parts import files_of
from torchyard.contract.attempts.rundir import INDEX_FILE
from torchyard.contract.errors import DataError
from torchyard.contract.files import archives
from torchyard.states.dividedtensor import DividedTensor
from torchyard.states.savedfiles import read_archive, read_folder
from torchyard.states.stateindex import Shard, describe
from torchyard.states.tensorfile import write_tensors

WHOLE = torch.arange(35.0).reshape(7, 5)
HALF = torch.arange(4).to(torch.bfloat16)


def state(first: int, after: int) -> dict[str, Any]:
    """Returns what a rank has of a state, with rows `first` to `after` of the tensor that is divided."""
    shard = Shard(WHOLE[first:after].clone(), (7, 5), first)
    return {
        "model": {"a.weight": shard, "b/bias": HALF},
        "tied": shard,
        "optimizer": {"state": {0: {"step": torch.tensor(3.0), "moment": (shard, None)}}, "groups": [{"lr": 1e-3}]},
        "metrics": {"a": math.nan, "b": -math.inf, "c": 2.5, "$odd": True},
        "empty": torch.empty(0, 3),
    }


def write(folder: Path) -> Path:
    """Writes the state of two ranks, of which the first has five rows."""
    folder.mkdir()
    for name, content in files_of([state(0, 5), state(5, 7)]).items():
        (folder / name).write_bytes(content)
    return folder


def archive(folder: Path) -> Path:
    """Writes the archive of a folder's files."""
    target = folder.with_suffix(".tar")
    target.write_bytes(archive_of({path.name: path.read_bytes() for path in sorted(folder.iterdir())}))
    return target


def read_download(folder: Path) -> dict[str, Any]:
    return read_archive(archive(folder))


@pytest.mark.parametrize("read", [read_folder, read_download])
def test_what_ranks_have_written_is_one_state(tmp_path: Path, read: Callable[[Path], dict[str, Any]]) -> None:
    found = read(write(tmp_path / "checkpoint"))
    assert found["model"]["a.weight"] is found["tied"] is found["optimizer"]["state"][0]["moment"][0]
    assert torch.equal(found["tied"], WHOLE)
    assert torch.equal(found["model"]["b/bias"], HALF)
    assert found["optimizer"]["state"][0]["step"] == 3
    assert found["optimizer"]["groups"] == [{"lr": 1e-3}]
    assert found["optimizer"]["state"][0]["moment"][1] is None
    assert math.isnan(found["metrics"].pop("a"))
    assert found["metrics"] == {"b": -math.inf, "c": 2.5, "$odd": True}
    assert found["empty"].shape == (0, 3)


def test_a_divided_tensor_reads_the_rows_that_are_asked_for() -> None:
    first = WHOLE[:5].clone()
    divided = DividedTensor((7, 5), [(0, first), (5, WHOLE[5:].clone())])
    assert (divided.shape, divided.dtype, divided.numel(), len(divided.size())) == (WHOLE.shape, WHOLE.dtype, 35, 2)
    for index in (slice(1, 4), slice(4, 6), slice(0, 7), slice(7, 9), (slice(2, 6), slice(1, 3)), 3, (6, 2), ...):
        part = divided[index]
        assert type(part) is Tensor
        assert torch.equal(part, WHOLE[index])
    assert divided[1:4].data_ptr() == first[1:].data_ptr(), "rows of one file are not copied"
    for made in (divided.to("cpu"), divided.detach(), divided.clone(), divided + 0, divided.contiguous()):
        assert type(made) is Tensor
        assert torch.equal(made, WHOLE)
    target = torch.zeros(7, 5)
    target.copy_(divided)
    assert torch.equal(target, WHOLE)
    for change in (lambda: divided.add_(1), lambda: divided.__setitem__(0, 1.0), divided.zero_):
        with pytest.raises(TypeError, match="cannot be changed in place"):
            change()


def test_the_format_is_that_of_safetensors() -> None:
    tensors = {"a": WHOLE, "turned": WHOLE.T, "half": HALF, "flag": torch.tensor([True]), "none": torch.empty(0)}
    content = io.BytesIO()
    write_tensors(tensors, content, metadata={"format": "pt"})
    found = load_safetensors(content.getvalue())
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], value) for name, value in tensors.items())
    assert len(content.getvalue()) == len(
        save_safetensors({**tensors, "turned": WHOLE.T.contiguous()}, {"format": "pt"})
    )


def test_what_no_checkpoint_can_have_is_named() -> None:
    with pytest.raises(TypeError, match="model/x, a object"):
        describe({"model": {"x": object()}})


Change = Callable[[Path], object]


def edit(change: Callable[[dict[str, Any]], object]) -> Change:
    def apply(folder: Path) -> None:
        index = json.loads((folder / INDEX_FILE).read_bytes())
        change(index)
        (folder / INDEX_FILE).write_text(json.dumps(index))

    return apply


def entry(index: dict[str, Any]) -> dict[str, Any]:
    return index["tensors"]["model/a.weight"]


def truncated(folder: Path) -> None:
    path = folder / "state-1.safetensors"
    path.write_bytes(path.read_bytes()[:-8])


def forged_header(folder: Path) -> None:
    """Says in a file of the same size that its tensor has more rows than bytes."""
    path = folder / "state-1.safetensors"
    content = path.read_bytes()
    assert b'"shape":[2,5],"data_offsets":[0,40]}}  ' in content
    path.write_bytes(content.replace(b'[2,5],"data_offsets":[0,40]}}  ', b'[999,5],"data_offsets":[0,40]}}'))


def linked(folder: Path) -> None:
    path = folder / "state-1.safetensors"
    path.rename(folder.parent / "elsewhere")
    path.symlink_to(folder.parent / "elsewhere")


HOSTILE: dict[str, Change] = {
    "no file": lambda folder: (folder / "state-1.safetensors").unlink(),
    "truncated": truncated,
    "a link": linked,
    "a huge header": forged_header,
    "a length of a header": lambda folder: (folder / "state-1.safetensors").write_bytes(b"\xff" * 104),
    "no index": lambda folder: (folder / INDEX_FILE).unlink(),
    "torn index": lambda folder: (folder / INDEX_FILE).write_bytes((folder / INDEX_FILE).read_bytes()[:-9]),
    "nested index": lambda folder: (folder / INDEX_FILE).write_text("[" * 200_000),
    "list": lambda folder: (folder / INDEX_FILE).write_text("[]"),
    "newer": edit(lambda index: index.update(format=2)),
    "outside": edit(lambda index: index["files"][1].update(path="../elsewhere")),
    "absolute": edit(lambda index: index["files"][1].update(path="/etc/passwd")),
    "hidden": edit(lambda index: index["files"][1].update(path=".hidden")),
    "twice": edit(lambda index: index["files"][1].update(path=index["files"][0]["path"])),
    "huge": edit(lambda index: entry(index).update(shape=[2**40, 2**20])),
    "huge rows": edit(lambda index: entry(index).update(shape=[2**40, 5], rows=[[0, 0, 5], [1, 5, 2**40]])),
    "negative": edit(lambda index: entry(index).update(shape=[-7, 5])),
    "gap": edit(lambda index: entry(index).update(rows=[[0, 0, 5], [1, 6, 7]])),
    "overlap": edit(lambda index: entry(index).update(rows=[[0, 0, 5], [1, 4, 7]])),
    "absent": edit(lambda index: entry(index).update(rows=[[0, 0, 5]])),
    "no rows": edit(lambda index: entry(index).update(rows=[])),
    "another file": edit(lambda index: entry(index).update(rows=[[0, 0, 5], [7, 5, 7]])),
    "backwards": edit(lambda index: entry(index).update(rows=[[0, 0, 9], [1, 9, 7]])),
    "other dtype": edit(lambda index: entry(index).update(dtype="F64")),
    "no dtype": edit(lambda index: entry(index).update(dtype="O")),
    "renamed": edit(lambda index: index["tensors"].update({"model/z": entry(index)})),
    "not described": edit(lambda index: index["tensors"].pop("model/a.weight")),
    "other kind": edit(lambda index: index["state"].update(model={"$pickle": "x"})),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_torn_or_forged_is_refused_with_what_and_where(tmp_path: Path, name: str, approved: Approved) -> None:
    folder = write(tmp_path / "checkpoint")
    HOSTILE[name](folder)
    with pytest.raises(DataError) as raised:
        read_folder(folder)
    assert raised.value.message == approved.of_row("message", folder=folder)


@pytest.mark.parametrize("kept", [10, 600, 2000, -1025])
def test_a_torn_archive_is_refused(tmp_path: Path, kept: int) -> None:
    file = archive(write(tmp_path / "checkpoint"))
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(DataError, match="it is incomplete"):
        read_archive(file)


def test_the_archive_is_a_tar_whose_size_is_known_before(tmp_path: Path) -> None:
    folder = write(tmp_path / "checkpoint")
    file = archive(folder)
    paths = sorted(folder.iterdir())
    assert archives.size_of((path.name, path.stat().st_size) for path in paths) == file.stat().st_size
    with tarfile.open(file) as tar:
        assert [member.name for member in tar] == [path.name for path in paths]


def test_an_archive_of_an_older_version_is_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "checkpoint")
    with tarfile.open(tmp_path / "old.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        for path in folder.iterdir():
            tar.add(path, path.name)
    old, new = read_archive(tmp_path / "old.tar"), read_archive(archive(folder))
    assert old.keys() == new.keys() == read_folder(folder).keys()
