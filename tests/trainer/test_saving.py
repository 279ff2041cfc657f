"""What a save of shards takes of rank 0's memory, and what the ranks write where each writes its own part."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.ranks import job, on_ranks, results
from tests.trainer.runs import lines, same
from tests.trainer.saves import environ, growth, read, size_of, train
from torchyard.contract.attempts.events import CheckpointSaved
from torchyard.contract.attempts.records import Manifest
from torchyard.contract.attempts.rundir import INDEX_FILE, MANIFEST, STATE_FILE, WEIGHTS_FILE, RunDir
from torchyard.host.recordfiles import read_record

LARGE: dict[str, Any] = {"width": 1024, "layers": 6, "steps": 1}
SMALL: dict[str, Any] = {
    "width": 160,
    "layers": 1,
    "steps": 6,
    "ema": {"decay": 0.5, "ramp": 0},
    "optimizer": {"name": "adamw", "lr": 0.01, "fused": True, "lookahead": {"every_steps": 2}},
}
ABOVE = 1 << 16
COMPARED = ("model", "raw", "slow", "optimizer")


def saved(run: RunDir, step: int) -> Path:
    return run.checkpoints / f"step-{step:08d}"


def resume(root: Path, begun: Path, *, ranks: int, above: int | None, **keywords: Any) -> dict[str, Any]:
    """Trains from a checkpoint to the end on so many ranks. Returns the last state."""
    run = job(root, {})
    results(on_ranks(ranks, partial(train, environ(run, above=above, resume_from=begun), **SMALL, **keywords)))
    return read(saved(run, 6))


def close(one: Any, other: Any, *, within: float = 1e-9) -> bool:
    """Returns whether the tensors of two states, in float64, are equal but for the order of additions."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key], within=within) for key in one)
    return not hasattr(one, "allclose") or one.allclose(other, rtol=0, atol=within)


@pytest.mark.thorough
def test_a_save_takes_little_more_than_the_whole_state_on_rank_0(tmp_path: Path) -> None:
    small, run = (job(tmp_path / name, {}) for name in ("small", "large"))
    grown, _ = results(on_ranks(2, partial(growth, environ(small), environ(run), **LARGE)))
    state = read(saved(run, 1))
    whole = size_of({key: state[key] for key in ("model", "optimizer")})
    assert whole > 6 * 3 * 1024 * 1024 * 8
    assert 0.5 * whole < grown < 1.2 * whole, f"{grown / whole:.2f} × the whole state"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunDir]:
    """The same training whose ranks write whole states, and their own parts; and its second half, from parts."""
    root = tmp_path_factory.mktemp("runs")
    found = {name: job(root / name, {}) for name in ("whole", "parts", "resumed")}
    whole, parts = environ(found["whole"]), environ(found["parts"], above=ABOVE)
    resumed = environ(found["resumed"], above=ABOVE, resume_from=saved(found["parts"], 2))
    results(on_ranks(2, partial(train, whole, parts, resumed, **SMALL)))
    return found


def test_ranks_that_write_their_own_parts_save_the_same_state(runs: dict[str, RunDir]) -> None:
    for step in (2, 6):
        whole, parts = (read(saved(runs[name], step)) for name in ("whole", "parts"))
        assert whole.keys() == parts.keys()
        assert same({key: parts[key] for key in COMPARED}, {key: whole[key] for key in COMPARED})
        assert {key: parts[key] for key in ("step", "epoch", "sampler")} == {
            key: whole[key] for key in ("step", "epoch", "sampler")
        }


def test_a_resume_from_parts_on_as_many_ranks_goes_on_bit_by_bit(runs: dict[str, RunDir]) -> None:
    assert same(read(saved(runs["resumed"], 6)), read(saved(runs["parts"], 6)))


def test_a_checkpoint_in_parts_is_published_as_any_other(runs: dict[str, RunDir]) -> None:
    folder = saved(runs["parts"], 2)
    manifest = read_record(folder / MANIFEST, Manifest)
    assert manifest is not None
    listed = {file.path: file.size for file in manifest.files}
    parts = [f"state-{rank:05d}-of-00002.safetensors" for rank in (1, 2)]
    assert listed == {path.name: path.stat().st_size for path in folder.iterdir() if path.name != MANIFEST}
    assert sorted(listed) == [*parts, INDEX_FILE]
    whole = size_of(read(saved(runs["whole"], 2)))
    assert all(0.4 * whole < listed[name] < 0.7 * whole for name in parts), "each rank writes its own share"
    told = [line.name for line in lines(runs["parts"]) if isinstance(line, CheckpointSaved)]
    assert told == [saved(runs["parts"], step).name for step in (2, 4, 6)]
    assert {path.name for path in runs["parts"].checkpoints.iterdir()} == {*told}, "nothing else is left"
    assert {path.name for path in saved(runs["whole"], 2).iterdir()} == {STATE_FILE, WEIGHTS_FILE, MANIFEST}


@pytest.mark.thorough
@pytest.mark.parametrize(("ranks", "strategy"), [(3, "fsdp"), (1, "fsdp"), (2, "ddp"), (1, "ddp")])
def test_parts_are_resumed_on_other_ranks_as_a_whole_state_is(
    runs: dict[str, RunDir], tmp_path: Path, ranks: int, strategy: str
) -> None:
    parts, whole = (
        resume(tmp_path / name, saved(runs[name], 2), ranks=ranks, above=ABOVE, strategy=strategy)
        for name in ("parts", "whole")
    )
    assert same(parts, whole), "on the same ranks it makes no difference which checkpoint is read"
    straight = read(saved(runs["whole"], 6))
    assert close({key: parts[key] for key in COMPARED}, {key: straight[key] for key in COMPARED})


@pytest.mark.thorough
def test_parts_of_three_ranks_are_resumed_by_one(tmp_path: Path, runs: dict[str, RunDir]) -> None:
    run = job(tmp_path / "three", {})
    begun = saved(runs["parts"], 2)
    results(on_ranks(3, partial(train, environ(run, above=ABOVE, resume_from=begun), **SMALL)))
    assert len([*saved(run, 4).glob("state-*-of-00003.safetensors")]) == 3
    end = resume(tmp_path / "one", saved(run, 4), ranks=1, above=ABOVE)
    straight = read(saved(runs["whole"], 6))
    assert close({key: end[key] for key in COMPARED}, {key: straight[key] for key in COMPARED})
