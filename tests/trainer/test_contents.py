"""The contents of a run's data are in its checkpoints, and a run does not resume on other data."""

from collections.abc import Callable
import os
from pathlib import Path
import sys
from types import SimpleNamespace
from typing import Any, cast
import zlib

import numpy as np
from PIL import Image
import pytest
import torch

from tests.trainer.ranks import environment, job, on_ranks, recipe, results
from tests.trainer.runs import load, small_pictures
from tests.trainer.walls import shifted
import torchyard
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.errors import DataError
from torchyard.contract.recipes import ImageDataConfig, SegmentationDataConfig, TextDataConfig
from torchyard.run import Run
from trainer import __main__ as program
from trainer import contents as module
from trainer.contents import Contents
from trainer.data.arrays import load_npz
from trainer.data.folders import load_folders
from trainer.data.pairs import load_pairs
from trainer.data.texts import load_texts
from trainer.task import Task
from trainer.world import World, joined

ALONE = World(rank=0, size=1, local_size=1, device=torch.device("cpu"))

SEGMENTATION: dict[str, Any] = {
    "data": {"image_size": 32, "workers": 0},
    "training": {"epochs": 3, "per_device_batch_size": 2},
}


def class_folders(root: Path) -> Path:
    for name in ("cat/1.png", "cat/2.png", "cat/3.png", "dog/1.png", "dog/2.png", "dog/3.png"):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), ord(name[0]), dtype=np.uint8)).save(file, format="BMP")
    return root


def pairs(root: Path) -> Path:
    """Writes pairs with masks that are not compressed, so that they keep their size when they are inverted."""
    for mask in (shifted(root, count=12) / "masks").iterdir():
        Image.open(mask).save(mask, format="BMP")
    return root


def npz(root: Path) -> Path:
    root.mkdir()
    return Path(small_pictures(root, train=20, val=10))


def text_files(root: Path) -> Path:
    root.mkdir()
    for name in ("bad", "good"):
        (root / f"{name}.txt").write_text("".join(f"{name} film {number}\n" for number in range(5)))
    return root


def table(name: str, lines: str) -> Callable[[Path], Path]:
    def write(root: Path) -> Path:
        root.mkdir()
        (root / name).write_text(lines)
        return root / name

    return write


def identified(path: Path, kind: str) -> Task:
    """Returns what `Contents` needs of a task on this source."""
    match kind:
        case "class folders":
            data = load_folders(path, ImageDataConfig())
        case "npz":
            data = load_npz(path, ImageDataConfig())
        case "images and masks":
            data = load_pairs(path, SegmentationDataConfig(source="file:///x", image_size=32))
        case _:
            data = load_texts(path, TextDataConfig(source="file:///x"))
    return cast(Task, SimpleNamespace(identity=data.identity, split_hash=data.split_hash))


KINDS: dict[str, tuple[Callable[[Path], Path], str, bytes]] = {
    "class folders": (class_folders, "dog/2.png", b""),
    "npz": (npz, ".", b""),
    "images and masks": (pairs, "masks/wall-3.png", b""),
    "text files": (text_files, "good.txt", b"film 2"),
    "CSV": (table("d.csv", "text,label\nfine film,1\ndull film,0\nfine day,1\ndull day,0\n"), ".", b"dull film"),
    "JSON lines": (
        table("d.jsonl", "".join(f'{{"text": "word {n}", "label": {n % 2}}}\n' for n in range(6))),
        ".",
        b"word 3",
    ),
}


def change(file: Path, part: bytes) -> None:
    """Changes a picture, or `part` of a text, so that the file's size and modification time stay as they are."""
    before = file.stat()
    if file.suffix == ".npz":
        with np.load(file) as arrays:
            changed = {name: array[::-1] if name == "x_train" else array for name, array in arrays.items()}
        np.savez(file, **changed)
    elif file.suffix == ".png":
        Image.fromarray(255 - np.asarray(Image.open(file))).save(file, format="BMP")
    else:
        content = file.read_bytes()
        assert part in content
        file.write_bytes(content.replace(part, part.upper()))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size


def hashed(task: Task, world: World, state: dict[str, Any] | None = None) -> dict[str, Any]:
    contents = Contents(task, source="file:///x", run=torchyard.init(), world=world)
    try:
        contents.check(state)
        contents.start()
        contents.finish()
        return contents.state_dict() | {"step": 1}
    finally:
        contents.close()


def compared(kind: str, path: Path, changed: str, part: bytes) -> tuple[bool, str, str]:
    """Returns whether unchanged data has the same hash, and the errors after a change and without the changed file."""
    with joined(recipe().distributed.collective_timeout()) as world:
        first = hashed(identified(path, kind), world)
        again = hashed(identified(path, kind), world, first)
        # The state of a checkpoint from before files were hashed is compared by names and sizes alone.
        hashed(identified(path, kind), world, {"data_hash": first["data_listing"], "split_hash": first["split_hash"]})
        change(path / changed, part)
        errors: list[str] = []
        for state in (first, first | {"data_hash": None}):
            with pytest.raises(DataError) as caught:
                hashed(identified(path, kind), world, state)
            errors.append(caught.value.message)
    return first["data_hash"] == again["data_hash"] is not None, errors[0], errors[1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_file_of_every_kind_of_source_is_named_before_a_resume(tmp_path: Path, kind: str) -> None:
    make, changed, part = KINDS[kind]
    path = make(tmp_path / "data")
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    ((same, *errors),) = results(on_ranks(1, compared, kind, path, changed, part, env=env))
    assert same
    assert (
        errors
        == [f"{path / changed} has changed since the checkpoint was saved. Submit a new job, or restore the data"] * 2
    )


def train(stop_at: int | None = None) -> bool:
    run = torchyard.init()
    steps = 0

    def should_stop() -> bool:
        nonlocal steps
        steps += 1
        return steps == stop_at

    run.should_stop = should_stop
    program.main()
    return True


def attempt(root: Path, data: Path, *, stop_at: int | None = None, resume_from: Path | None = None) -> RunDir:
    run = job(root, {**SEGMENTATION, "data": {**SEGMENTATION["data"], "source": data.as_uri()}}, trainer="segmentation")
    env = environment(run, data=str(data), resume_from=resume_from)
    results(on_ranks(2, train, stop_at, env=env))
    return run


@pytest.mark.thorough
def test_a_run_does_not_resume_when_a_mask_was_inverted(tmp_path: Path) -> None:
    data = pairs(tmp_path / "data")
    first = attempt(tmp_path / "first", data, stop_at=4)
    (checkpoint,) = first.checkpoints.glob("step-*")
    second = attempt(tmp_path / "second", data, resume_from=checkpoint)
    whole = second.checkpoints / "epoch-0003"  # the end of a run waits until all files are hashed
    last = load(whole)
    assert last["data_hash"] is not None
    assert last["data_hash"] != last["data_listing"]
    mask = data / "masks" / "wall-3.png"
    change(mask, b"")
    with pytest.raises(DataError, match=f"^{mask} has changed since the checkpoint was saved"):
        attempt(tmp_path / "third", data, resume_from=whole)


def test_the_job_is_told_once_that_its_data_is_not_all_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class_folders(tmp_path)
    run, told = Run({}), list[tuple[str, str]]()

    def tell(text: str, level: str = "info") -> None:
        told.append((level, text))

    monkeypatch.setattr(run, "message", tell)
    monkeypatch.setattr(sys, "executable", "/bin/false")  # as where the host kills it
    contents = Contents(identified(tmp_path, "class folders"), source=str(tmp_path), run=run, world=ALONE)
    with contents:
        contents.finish()
        assert contents.state_dict()["data_hash"] is None
        assert contents.state_dict()["data_files"] is None
    assert told == [
        (
            "warning",
            "not all of the data is hashed, so a resume may not see that it changed: the process that hashes it ended "
            "with 1",
        )
    ]


def test_a_run_that_ends_before_its_data_is_hashed_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class_folders(tmp_path)
    run, told = Run({}), list[str]()

    def tell(text: str, level: str = "info") -> None:
        told.append(text)

    monkeypatch.setattr(run, "message", tell)
    with Contents(identified(tmp_path, "class folders"), source=str(tmp_path), run=run, world=ALONE):
        pass
    assert told == []


class Impatient(World):
    """One process, which leaves when it was asked for the tenth time whether all is hashed."""

    asked = 0

    def from_rank_0(self, value: Any) -> Any:
        if value is False:
            Impatient.asked += 1
            if Impatient.asked == 10:
                raise TimeoutError
        return value


def test_a_disk_that_hangs_does_not_pass_for_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = tmp_path / "stopped"
    stopped.write_text("#!/bin/sh\nkill -STOP $$\n")
    stopped.chmod(0o700)
    class_folders(tmp_path / "data")
    run, steps = Run({}), list[int]()

    def note(*, step: int) -> None:
        steps.append(step)

    monkeypatch.setattr(run, "progress", note)
    monkeypatch.setattr(module, "_POLL_S", 0.2)
    monkeypatch.setattr(sys, "executable", str(stopped))
    world = Impatient(rank=0, size=1, local_size=1, device=torch.device("cpu"))
    contents = Contents(identified(tmp_path / "data", "class folders"), source="file:///x", run=run, world=world)
    packed = torch.frombuffer(bytearray(zlib.compress(b"0 a\0")), dtype=torch.uint8)
    with pytest.raises(TimeoutError):
        contents.check({"data_files": packed, "step": 7})
    contents.close()
    assert len(steps) < 5  # while the program began
