"""Rank 0 looks through a source, and all ranks have what it has found."""

from collections.abc import Callable
from datetime import timedelta
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.approved import Approved
from tests.trainer.data.test_pictures import folders
from tests.trainer.data.test_textfiles import file
from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.runs import lines
from tests.trainer.walls import walls
import torchyard
from torchyard.contract.attempts.events import Message, Progress
from torchyard.contract.errors import DataError
from torchyard.contract.recipes import ImageDataConfig, SegmentationDataConfig, TextClassification
from torchyard.models.decoding import Header
from trainer.data import digests, pairs, scanning
from trainer.data import folders as class_folders
from trainer.data.folders import load_folders
from trainer.data.pairs import load_pairs
from trainer.data.picturefiles import PictureFile, header_of
from trainer.data.scanning import Scan
from trainer.recipes import make_task
from trainer.world import joined

MINUTE = timedelta(minutes=1)


def loaded(kind: str, root: Path, scan: Scan) -> Any:
    if kind == "class folders":
        return load_folders(root, ImageDataConfig(cache="none"), scan=scan)
    return load_pairs(root, SegmentationDataConfig(source="file:///x", image_size=32, cache="none"), scan=scan)


def found(kind: str, root: Path) -> tuple[str, str, list[list[int]], int]:
    """Returns what a rank knows of the data, some of its pictures, and how many headers it has read."""
    headers: list[PictureFile] = []

    def counted(file: PictureFile) -> Header:
        headers.append(file)
        return header_of(file)

    class_folders.header_of = pairs.header_of = counted
    with joined(MINUTE) as world:
        data = loaded(kind, root, Scan(world))
        headers_read = len(headers)
        plan = [torch.arange(len(data.val))]
        ((pictures, _),) = data.val.batches(plan, device=torch.device("cpu"), workers=0)
        return data.identity.digest, data.split_hash, pictures.flatten(1)[:, ::50].tolist(), headers_read


@pytest.mark.parametrize(("kind", "make", "headers"), [("class folders", folders, 11), ("pairs", walls, 16)])
def test_the_ranks_have_the_same_data_and_one_has_read_the_headers(
    tmp_path: Path, kind: str, make: Callable[[Path], Path], headers: int
) -> None:
    root = make(tmp_path / "data")
    first, second = results(on_ranks(2, found, kind, root))
    assert first[:3] == second[:3]
    assert (first[3], second[3]) == (headers, 0)


def failed(root: Path) -> str:
    with joined(MINUTE) as world:
        with pytest.raises(DataError) as caught:
            loaded("class folders", root, Scan(world))
        return caught.value.message


def test_an_error_is_the_same_on_all_ranks(tmp_path: Path, approved: Approved) -> None:
    root = folders(tmp_path / "data")
    bad = root / "val" / "dog" / "0.png"
    bad.write_text("no picture")
    first, second = results(on_ranks(2, failed, root))
    assert first == second
    assert first == approved("first", bad=bad)


def on_hosts_with_data(roots: list[Path]) -> str:
    """Each rank has a host of its own, with a folder of its own."""
    return failed(roots[int(os.environ["RANK"])])


@pytest.mark.parametrize("harm", ["other size", "absent"])
def test_hosts_with_other_files_are_seen(tmp_path: Path, harm: str) -> None:
    roots = [folders(tmp_path / host / "data") for host in ("a", "b")]
    other = roots[1] / "train" / "cat" / "1.png"
    if harm == "absent":
        other.unlink()
    else:
        other.write_bytes(other.read_bytes() + b"more")
    messages = results(on_ranks(2, on_hosts_with_data, roots, env={"LOCAL_WORLD_SIZE": "1"}))
    assert all("the ranks read different data" in message for message in messages)


def slowly(root: Path) -> str:
    """Looks through a source that takes long: each file is due to be told."""
    scanning.EVERY_S = -1.0
    run = torchyard.init()
    with joined(MINUTE) as world:
        data = loaded("class folders", root, Scan(world, run, step=7))
    run.close()
    return data.identity.digest


def test_a_long_look_is_told_and_keeps_the_run_alive(tmp_path: Path, approved: Approved) -> None:
    root = folders(tmp_path / "data")
    run = job(tmp_path / "run", {})
    first, second = results(on_ranks(2, slowly, root, env=environment(run, data=str(root))))
    assert first == second
    told = lines(run)
    assert [line.text for line in told if isinstance(line, Message)] == [approved("text")]
    assert {line.step for line in told if isinstance(line, Progress)} == {7}


def noting(source: Path, step: int) -> None:
    run = torchyard.init()
    config = TextClassification.model_validate({"data": {"source": source.as_uri(), "vocabulary": 300}})
    make_task(config, source=str(source), device=torch.device("cpu"), scan=Scan(run=run, step=step))
    run.message("loaded")
    run.close()


@pytest.mark.parametrize("step", [0, 7])
def test_the_job_is_told_at_its_first_start_what_was_guessed(tmp_path: Path, step: int) -> None:
    source = file(tmp_path / "a.csv", b"text,label\n" + b"caf\xe9,pos\nbad,neg\n" * 9)
    run = job(tmp_path / "run", {"data": {"source": source.as_uri()}}, trainer="text-classification")
    results(on_ranks(1, noting, source, step, env=environment(run, data=str(source))))
    told = [(line.level, line.text) for line in lines(run) if isinstance(line, Message)]
    guess = f"{source} is not UTF-8 (line 2) and is read as cp1252: if it is not, save it as UTF-8"
    assert told == [*([] if step else [("warning", guess)]), ("info", "loaded")]


def cached(root: Path, cache: str, bundle: str | None) -> bool:
    digests.SETTLED_NS = 0
    with joined(MINUTE) as world:
        data = load_folders(root, ImageDataConfig.model_validate({"cache": cache}), scan=Scan(world, bundle=bundle))
    return data.train._load.args[1] is not None  # pyright: ignore


@pytest.mark.parametrize(
    ("cache", "local_size", "bundle", "there"),
    [
        ("auto", 2, None, True),
        pytest.param("none", 2, None, False, marks=pytest.mark.thorough),
        pytest.param("auto", 1, None, False, marks=pytest.mark.thorough),
        ("auto", 1, "ab" * 32, True),
    ],
)
def test_hosts_keep_decoded_pictures_of_files_that_they_know(
    tmp_path: Path, cache: str, local_size: int, bundle: str | None, there: bool
) -> None:
    root = folders(tmp_path / "data")
    env = {"LOCAL_WORLD_SIZE": str(local_size), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert results(on_ranks(2, cached, root, cache, bundle, env=env)) == [there, there]
    assert (tmp_path / "cache" / "torchyard" / "decoded").exists() is there


def test_who_reads_alone_is_seen_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "EVERY_S", -1.0)
    calls: list[None] = []
    scan = Scan(alive=lambda: calls.append(None))
    assert scan.share(lambda: {"names": [*scan.each(["a", "b"], "reads")]}) == {"names": ["a", "b"]}
    assert len(calls) == 2
