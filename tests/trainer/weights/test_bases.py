"""The base of a run: rank 0 alone computes its digest, and who reads for long is seen to go on."""

from collections.abc import Callable
import os
from pathlib import Path

import pytest
import torch

from tests import forks
from tests.approved import Approved
from tests.trainer import language
from tests.trainer.bases import tiny_base
from tests.trainer.parallel.toy import MINUTE
from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.runs import lines
import torchyard
from torchyard.contract.attempts.events import Message, Progress
from torchyard.contract.errors import DataError
from torchyard.models.base import load_model, open_base
from torchyard.models.openfile import OpenFile
from trainer.data import scanning
from trainer.data.scanning import Scan
from trainer.parallel import make_strategy
from trainer.recipes.causal import make_task
from trainer.weights.bases import digest_of
from trainer.world import joined

forks.preload("tests.trainer.transformers_loaded")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_base(tmp_path_factory.mktemp("bases") / "tiny")


def hashed(root: Path) -> tuple[str, int]:
    """Returns the digest of a base, and how many files this rank has hashed for it."""
    scanning.EVERY_S = -1.0
    files: list[str] = []
    sha256 = OpenFile.sha256

    def counted(self: OpenFile, on_part: Callable[[], None] = lambda: None) -> str:
        files.append(self.name)
        return sha256(self, on_part)

    OpenFile.sha256 = counted
    run = torchyard.init()
    with joined(MINUTE) as world:
        digest = digest_of(open_base(root), Scan(world, run, step=7))
    run.close()
    return digest, len(files)


def test_one_rank_hashes_the_base_and_tells_that_it_goes_on(base: Path, tmp_path: Path, approved: Approved) -> None:
    run = job(tmp_path / "run", {})
    first, second = results(on_ranks(2, hashed, base, env=environment(run, data=str(base))))
    assert first == (open_base(base).digest, 1)
    assert second == (first[0], 0)
    told = lines(run)
    assert [line.text for line in told if isinstance(line, Message)] == [approved("text", base=base)]
    assert {line.step for line in told if isinstance(line, Progress)} == {7}


def disagree(roots: list[Path]) -> None:
    with joined(MINUTE) as world:
        digest_of(open_base(roots[world.rank]), Scan(world))


def test_ranks_that_find_different_bases_are_refused(base: Path, tmp_path: Path) -> None:
    other = tiny_base(tmp_path / "tiny", intermediate_size=48)
    for error in on_ranks(2, disagree, [base, other]):
        assert isinstance(error, DataError)
        assert "the ranks find different bases" in error.message


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_who_reads_a_base_is_seen_to_go_on(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    monkeypatch.setattr(scanning, "EVERY_S", -1.0)
    file = language.prompts(tmp_path / "data.jsonl")
    calls: list[None] = []
    scan = Scan(alive=lambda: calls.append(None))
    config = language.recipe(base, file, distributed={"strategy": strategy}, model={"method": "full"})
    task = make_task(config, source=str(file), device=torch.device("cpu"), scan=scan)
    assert (len(calls) > len(task.model.state_dict())) is (strategy == "ddp")
    if task.unfilled is not None:
        before = len(calls)
        task.unfilled.on_tensor()
        assert len(calls) == before + 1


def test_each_tensor_that_is_read_is_told(base: Path) -> None:
    calls: list[None] = []
    module = load_model(open_base(base), on_tensor=lambda: calls.append(None))
    assert len(calls) == len(module.state_dict())


def fill_changed(base: Path, file: Path) -> None:
    """Fills the shards of a model from a base that is changed after its digest was computed."""
    with joined(MINUTE) as world:
        config = language.recipe(base, file, distributed={"strategy": "fsdp"})
        task = make_task(config, source=str(file), device=world.device, scan=Scan(world))
        if world.rank == 0:
            weights = base / "model.safetensors"
            os.utime(weights, ns=(1, 1))
        world.any(False)
        make_strategy(task.model, config.distributed, world, unfilled=task.unfilled)


def test_a_base_that_changes_before_the_shards_are_filled_is_refused(tmp_path: Path, approved: Approved) -> None:
    base, file = tiny_base(tmp_path / "tiny"), language.prompts(tmp_path / "data.jsonl")
    for error in on_ranks(2, fill_changed, base, file):
        assert isinstance(error, DataError)
        assert error.message == approved("message", tmp_path=tmp_path)
