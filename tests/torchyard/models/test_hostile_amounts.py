"""Checkpoints that claim more data than their file has are refused before memory is allocated for it."""

from collections.abc import Callable, Sequence
import json
from multiprocessing.connection import Connection
from pathlib import Path
import pickle
from typing import Any
import zipfile

import pytest
import torch

from tests import forks
from tests.torchyard.models.test_loading import State, digits, films, refused, refused_state, walls
from tests.torchyard.states import parts
import torchyard
from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import REGISTRY
from torchyard.models import amounts, checkpoint, text, vision

forks.preload("tests.trainer.transformers_loaded")

_DEADLINE_S = 240
_MOST_MIB = 300
"""A load of the small files here imports a few modules; what they say would take gigabytes."""


def measured(paths: Sequence[Path]) -> list[tuple[int, str]]:
    """Loads files in a process of its own. Returns the MiB by which each has raised its peak, and what it said."""
    ours, theirs = forks.context.Pipe(duplex=False)
    process = forks.context.Process(target=_load, args=([*paths], theirs))
    process.start()
    theirs.close()
    try:
        assert ours.poll(_DEADLINE_S)
        return ours.recv()
    finally:
        process.kill()
        process.join()


def _load(paths: Sequence[Path], told: Connection) -> None:
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    found: list[tuple[int, str]] = []
    for path in paths:
        before = _peak_mib()
        try:
            torchyard.load(path, device="cpu")
            said = "loaded"
        except (ConfigError, DataError) as error:
            said = error.message
        found.append((_peak_mib() - before, said))
    told.send(found)


def _peak_mib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) >> 10


def stretched(state: State) -> State:
    """Returns a state whose weights are one number each, which is said to stand in all places."""
    return {**state, "model": {name: torch.zeros(()).expand(value.shape) for name, value in state["model"].items()}}


def large(state: State) -> State:
    """Returns a state of a text model of 4 GB."""
    sizes = {"hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 4, "num_attention_heads": 32}
    described = {**state["model_config"], **sizes}
    with torch.device("meta"):
        module = text.rebuild({**described, "num_labels": 2})
    return {**state, "model_config": described, "model": module.state_dict()}


def of_model(name: str) -> State:
    """Returns a state without weights that names a model of pictures."""
    config = REGISTRY["image-classification"].config.model_validate({"data": {}, "model": {"name": name}})
    sides = {"channels": 3, "height": 224, "width": 224}
    return {**digits(), "config": config.model_dump(mode="json"), "model": {}, "input": sides}


class _Zeros:
    def __init__(self, count: int) -> None:
        self._count = count

    def __reduce__(self) -> Any:
        return bytearray, (self._count,)


def test_small_files_that_say_that_they_are_large_take_little_memory(tmp_path: Path) -> None:
    other_objects = "it holds objects that no checkpoint of a recipe has"
    states = {
        "stretched": (stretched(large(films())), "its weights say that they are"),
        "a model of 2.6 GB that computes its sizes with tensors": (of_model("regnet_y_128gf"), "its model needs"),
        "four gigabytes of zeros": ({**digits(), "notes": _Zeros(4 << 30)}, other_objects),
    }
    paths = [tmp_path / f"{number}.pt" for number in range(len(states))]
    for path, (state, _) in zip(paths, states.values(), strict=True):
        torch.save(state, path)
        assert path.stat().st_size < 1_000_000
    for (name, (_, words)), (mebibytes, said) in zip(states.items(), measured(paths), strict=True):
        assert words in said, name
        assert mebibytes < _MOST_MIB, name


@pytest.mark.parametrize("make", [digits, walls, films])
def test_stretched_weights_of_any_recipe_are_refused(tmp_path: Path, make: Callable[[], State]) -> None:
    assert "its weights say that they are" in refused_state(tmp_path, stretched(make()))


def test_many_names_of_one_tensor_are_refused_in_parts_too(tmp_path: Path) -> None:
    folder = parts.write(tmp_path / "checkpoint", digits())
    index = folder / "state.index.json"
    content = json.loads(index.read_bytes())
    shared = content["state"]["model"]["classifier.0.weight"]
    content["state"]["model"] |= {f"layer{number}": shared for number in range(1000)}
    index.write_text(json.dumps(content))
    assert "its weights say that they are" in refused(folder)
    assert "its weights say that they are" in refused(index)


def test_a_weight_may_have_two_names(tmp_path: Path) -> None:
    state = digits()
    state["model"] |= {f"again.{name}": value for name, value in state["model"].items()}
    torch.save(state, tmp_path / "best.pt")
    assert len(checkpoint.read(tmp_path / "best.pt")["model"]) == len(state["model"])


def test_entries_of_a_zip_that_are_the_same_bytes_are_refused(tmp_path: Path) -> None:
    state = digits()
    state["model"] |= {f"layer{number}": torch.zeros(10_000) for number in range(30)}
    torch.save(state, tmp_path / "plain.pt")
    with zipfile.ZipFile(tmp_path / "plain.pt") as plain:
        entries = [entry for entry in plain.infolist() if entry.file_size == 40_000]
        kept = {name: plain.read(name) for name in plain.namelist() if name not in {each.filename for each in entries}}
        content = plain.read(entries[0].filename)
    with zipfile.ZipFile(tmp_path / "best.pt", "w") as changed:
        for name, each in kept.items():
            changed.writestr(name, each)
        changed.writestr(entries[0].filename, content)
        first = changed.getinfo(entries[0].filename)
        for entry in entries[1:]:
            again = zipfile.ZipInfo(entry.filename)
            again.header_offset, again.CRC = first.header_offset, first.CRC
            again.file_size = again.compress_size = first.file_size
            changed.filelist.append(again)
            changed.NameToInfo[again.filename] = again
    assert (tmp_path / "best.pt").stat().st_size < (tmp_path / "plain.pt").stat().st_size / 2
    assert str(tmp_path) in refused(tmp_path / "best.pt")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["vit_h_14", "timm/vit_giant_patch14_224", "timm/regnety_1280", "hf/vit"])
def test_a_model_without_weights_takes_no_memory(tmp_path: Path, name: str) -> None:
    torch.save(of_model(name), tmp_path / "best.pt")
    ((mebibytes, said),) = measured([tmp_path / "best.pt"])
    assert "its model needs" in said
    assert mebibytes < _MOST_MIB


def test_a_load_runs_no_pass_through_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({**digits(), "input": {"channels": 1, "height": 4096, "width": 4096}}, tmp_path / "best.pt")
    passes: list[object] = []
    monkeypatch.setattr(vision.SmallCNN, "forward", lambda self, pictures: passes.append(pictures))  # pyright: ignore[reportUnknownLambdaType]
    torchyard.load(tmp_path / "best.pt", device="cpu")
    assert passes == []


def test_a_second_pickle_in_the_file_is_refused(tmp_path: Path) -> None:
    torch.save(digits(), tmp_path / "best.pt")
    with zipfile.ZipFile(tmp_path / "best.pt", "a") as changed:
        changed.writestr("other/data.pkl", pickle.dumps({}))
    assert "it holds objects that no checkpoint of a recipe has" in refused(tmp_path / "best.pt")


@pytest.mark.parametrize("key", ["recipe", "format", "metrics", "config", "classes", "model_config"])
def test_lists_that_hold_each_other_many_times_are_refused(tmp_path: Path, key: str) -> None:
    doubled: list[Any] = []
    for _ in range(60):
        doubled = [doubled, doubled]
    assert f"more than {amounts.MOST_VALUES} values" in refused_state(tmp_path, {**films(), key: doubled})


def test_a_text_that_stands_in_many_places_is_refused(tmp_path: Path) -> None:
    text = "a" * (1 << 20)
    state = {**digits(), "recipe": [text] * 1000}
    assert f"{amounts.MOST_CHARACTERS} characters" in refused_state(tmp_path, state)


def test_lists_in_each_other_without_end_are_refused(tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(amounts.DEEPEST + 1):
        deep = [deep]
    assert f"{amounts.DEEPEST} lists in each other" in refused_state(tmp_path, {**digits(), "recipe": deep})
