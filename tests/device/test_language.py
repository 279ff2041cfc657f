"""Language models on the simulated device: an adapter or all weights, replicated or sharded, on two ranks."""

from dataclasses import dataclass
from itertools import product
import math
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.device.runs import Outcome, train
from tests.trainer import language
from tests.trainer.bases import tiny_base
from tests.trainer.runs import lines, points, same, state
from torchyard.contract.attempts.events import Message
from torchyard.contract.attempts.rundir import RunDir

forks.preload("tests.trainer.transformers_loaded")


@dataclass(frozen=True)
class Source:
    """A base, and examples."""

    base: Path
    data: Path

    def tune(
        self, root: Path, library: Path, wanted: dict[str, Any], *, resume_from: Path | None = None, memory: int = 0
    ) -> tuple[RunDir, list[Outcome]]:
        config = language.sections(self.base, self.data, **wanted)
        return train(
            root,
            library,
            config,
            data=str(self.data),
            trainer="causal-lm",
            resume_from=resume_from,
            memory=memory,
        )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("source")
    return Source(tiny_base(folder / "tiny", num_key_value_heads=2), language.prompts(folder / "data.jsonl", count=20))


def sections(method: str, strategy: str, precision: str, **training: Any) -> dict[str, Any]:
    sizes = {"epochs": 1, "per_device_batch_size": 1, "gradient_accumulation_steps": 2, "precision": precision}
    return {
        "model": {"method": method},
        "training": {**sizes, **training},
        "distributed": {"strategy": strategy},
        "evaluation": {"samples": 1, "new_tokens": 3},
        "logging": {"every_steps": 2},
    }


ALL = [*product(("lora", "full"), ("ddp", "fsdp"), ("bf16", "fp32"))]
FEW = {("full", "ddp", "bf16")}
CASES = [pytest.param(case, marks=[] if case in FEW else pytest.mark.thorough, id="-".join(case)) for case in ALL]
Case = tuple[str, str, str]


@pytest.mark.parametrize("case", CASES)
def test_a_language_model_is_tuned_on_devices_and_no_step_waits(
    tmp_path: Path, library: Path, source: Source, case: Case
) -> None:
    run, outcomes = source.tune(tmp_path, library, sections(*case, activation_checkpointing=case[2] == "bf16"))
    losses = [loss for _, loss in points(run, "train/loss")]
    assert losses[-1] < losses[0] < 7
    assert all(math.isfinite(value) for _, value in points(run, "val/loss"))
    one, other = outcomes
    assert one.weights == other.weights
    for outcome in outcomes:
        assert outcome.waits[1:] == (0,) * (len(outcome.waits) - 1)
        assert outcome.peaks[1 - outcome.device] == 0


@pytest.mark.thorough
@pytest.mark.parametrize("case", ALL, ids="-".join)
def test_a_tuning_on_devices_resumes_bit_equal(tmp_path: Path, library: Path, source: Source, case: Case) -> None:
    wanted = {**sections(*case, epochs=2), "ema": {"decay": 0.9}}
    whole, _ = source.tune(tmp_path / "whole", library, wanted)
    begun = whole.checkpoints / "epoch-0001"
    resumed, _ = source.tune(tmp_path / "resumed", library, wanted, resume_from=begun)
    assert same(state(resumed, "epoch-0002"), state(whole, "epoch-0002"))


@pytest.mark.thorough
def test_a_micro_batch_that_does_not_fit_is_halved_and_said_in_tokens(
    tmp_path: Path, library: Path, source: Source
) -> None:
    sizes = {"epochs": 1, "max_steps": 2, "per_device_batch_size": 4, "precision": "fp32"}
    wanted: dict[str, Any] = {"training": sizes, "evaluation": {"samples": 0}}
    _, outcomes = source.tune(tmp_path / "free", library, wanted)
    most = max(outcome.peaks[outcome.device] for outcome in outcomes)
    wanted["training"] = {**sizes, "auto_batch": True}
    run, short = source.tune(tmp_path / "short", library, wanted, memory=most * 9 // 10)
    assert {outcome.micro_batch for outcome in short} == {2}
    said = "a micro-batch of 4 sequences (192 tokens) does not fit in memory: micro-batches are reduced from 4"
    assert any(said in line.text for line in lines(run) if isinstance(line, Message))
