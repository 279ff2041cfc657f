"""Ranks that save together: a checkpoint is published once all parts are whole and fit, or not at all."""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
import errno
import json
from pathlib import Path
import threading
from typing import Any

import pytest
import torch

from tests.trainer.runs import lines
from torchyard.contract.attempts.events import CheckpointSaved, Message
from torchyard.contract.attempts.records import Manifest
from torchyard.contract.attempts.rundir import INDEX_FILE, Env, RunDir
from torchyard.run import Run, together
from torchyard.run.eventlog import EventLog
from torchyard.run.saved import Saved
from torchyard.run.together import Joint, Ranks
from torchyard.states.savedfiles import read_folder
from torchyard.states.stateindex import Shard

RANKS = 3


class Meeting:
    """Collects the texts of all threads."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(RANKS)
        self._texts = [""] * RANKS

    def of(self, rank: int) -> Callable[[str], list[str]]:
        def meet(text: str) -> list[str]:
            self._texts[rank] = text
            self._barrier.wait(60)
            found = [*self._texts]
            self._barrier.wait(60)
            return found

        return meet


class Program:
    """Ranks of one attempt, each in a thread of its own."""

    def __init__(self, root: Path) -> None:
        self.run = RunDir(root)
        self.run.create()
        meeting = Meeting()
        self._ranks = [Ranks(rank, RANKS, meeting.of(rank)) for rank in range(RANKS)]
        place = {Env.RUN_DIR: str(self.run.job), "WORLD_SIZE": str(RANKS)}
        self._runs = [Run({**place, "RANK": str(rank)}) for rank in range(RANKS)]
        self._threads = ThreadPoolExecutor(RANKS)
        self._closed = False

    def each(self, act: Callable[[int], object]) -> None:
        assert len([*self._threads.map(act, range(RANKS))]) == RANKS

    def save(self, step: int, *, background: bool = True, unfit: Sequence[int] = ()) -> None:
        def save(rank: int) -> None:
            shard = Shard(torch.full((2, 3), float(10 * step + rank)), (2 * RANKS, 3), 2 * rank)
            self._runs[rank].save_checkpoint(
                {"model": {"weight": shard}, "step": step},
                step=step,
                background=background,
                ranks=self._ranks[rank],
                unfit=lambda state: "it is not finite" if rank in unfit else None,
            )

        self.each(save)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.each(lambda rank: self._runs[rank].close())
            self._threads.shutdown()

    @property
    def published(self) -> list[str]:
        told = [line.name for line in lines(self.run) if isinstance(line, CheckpointSaved)]
        there = sorted(path.name for path in self.run.checkpoints.iterdir())
        assert there == sorted(told), "nothing is there that is not published"
        return told

    @property
    def warnings(self) -> list[str]:
        return [line.text for line in lines(self.run) if isinstance(line, Message) and line.level == "warning"]


@pytest.fixture
def program(tmp_path: Path) -> Generator[Program]:
    program = Program(tmp_path / "run")
    yield program
    program.close()


@pytest.mark.parametrize("background", [True, False])
def test_all_parts_are_one_checkpoint(program: Program, background: bool) -> None:
    program.save(1, background=background)
    program.save(2, background=background)
    program.close()
    assert program.published == ["step-00000001", "step-00000002"]
    folder = program.run.checkpoints / "step-00000002"
    weight = read_folder(folder)["model"]["weight"]
    assert weight[:, 0].tolist() == [20.0, 20.0, 21.0, 21.0, 22.0, 22.0]
    assert [file["path"] for file in json.loads((folder / INDEX_FILE).read_bytes())["files"]] == [
        f"state-{rank:05d}-of-00003.safetensors" for rank in (1, 2, 3)
    ]
    assert program.warnings == []


@pytest.mark.parametrize("rank", [0, 2])
def test_one_unfit_part_keeps_all_from_being_published(program: Program, rank: int) -> None:
    program.save(1)
    program.save(2, unfit=[rank])
    program.close()
    assert program.published == ["step-00000001"]
    assert program.warnings == ["no checkpoint at step 2: it is not finite. The last good one is still the newest"]


def test_the_same_step_is_published_twice(program: Program) -> None:
    program.save(1)
    program.save(1)
    program.close()
    first, second = program.published
    assert first == "step-00000001"
    assert second.rpartition("-")[0] == first


def full_for(monkeypatch: pytest.MonkeyPatch, part: str, *, until: threading.Event) -> threading.Event:
    """Fills the disk for a part, until an event is set. Returns an event: a rank has met the full disk."""
    original, met = together.write_file, threading.Event()

    def write(folder: Path, name: str, content: Any) -> Any:
        if part in name and not until.is_set():
            (folder / name).write_bytes(b"half")
            met.set()
            raise OSError(errno.ENOSPC, "No space left on device", str(folder / name))
        return original(folder, name, content)

    monkeypatch.setattr(together, "write_file", write)
    return met


def test_a_part_that_met_a_full_disk_is_replaced_by_the_next_save(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = threading.Event()
    met = full_for(monkeypatch, "state-00002", until=space)
    program.save(1)
    assert met.wait(60)
    space.set()
    program.save(2)
    program.close()
    assert program.published == ["step-00000002"]
    (warning,) = program.warnings
    assert "the checkpoint of step 1 cannot be written" in warning
    assert "rank 1 could not write its part" in warning


def test_a_part_that_met_a_full_disk_is_written_at_the_end(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    space = threading.Event()
    met = full_for(monkeypatch, "state-00002", until=space)
    program.save(1)
    assert met.wait(60)
    space.set()
    program.close()
    assert program.published == ["step-00000001"]
    assert program.warnings == []


@pytest.mark.parametrize("name", ["state-00001", INDEX_FILE])
def test_rank_0_waits_for_space_too(program: Program, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    space = threading.Event()
    full_for(monkeypatch, name, until=space)
    program.save(1, background=False)
    space.set()
    program.close()
    assert program.published == ["step-00000001"]
    assert len(program.warnings) == 1


def test_a_part_that_does_not_grow_is_not_waited_for_for_ever(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "SILENCE_S", 0.0)
    saved = Saved(Manifest(step=1, files=[]), {"a": torch.ones(2)}, None, {}, None, print, owned=True)
    joint, _ = Joint.agreed(saved, Ranks(0, 2, lambda text: [text, ""]))
    events = EventLog(program.run.events, synchronize=lambda: None, describes=False)
    with pytest.raises(OSError, match="rank 1 has written nothing") as raised:
        joint.pending(program.run.checkpoints, events, clone=True).write()
    assert raised.value.errno == errno.ETIMEDOUT
    joint.discard(program.run.checkpoints)
    assert [*program.run.checkpoints.iterdir()] == []
