"""Runs of causal-lm: the same for any number of ranks, resumed, evaluated and started from checkpoints."""

from collections.abc import Callable
import os
from pathlib import Path
import signal
from typing import Any

import pytest

from tests import forks
from tests.trainer import language
from tests.trainer.bases import tiny_base
from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.runs import lines, load, points, same
import torchyard
from torchyard.contract.events import Message
from torchyard.contract.rundir import Env, RunDir
from trainer import __main__ as trainer

forks.preload("transformers.models.llama.modeling_llama", "peft")
NOBODY = f"job_{'0' * 32}"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_base(tmp_path_factory.mktemp("bases") / "tiny")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return language.prompts(tmp_path_factory.mktemp("data") / "data.jsonl")


def train(dies: int | None = None, after: int = 0) -> bool:
    """Runs the trainer's main. Rank `dies` is killed after `after` steps."""
    run = torchyard.init()
    steps = 0

    def should_stop(ask: Callable[[], bool] = run.should_stop) -> bool:
        nonlocal steps
        steps += 1
        if run.rank == dies and steps == after:
            os.kill(os.getpid(), signal.SIGKILL)
        return ask()

    run.should_stop = should_stop
    trainer.main()
    return True


def run_job(
    root: Path,
    base: Path,
    file: Path,
    *,
    ranks: int = 1,
    dies: int | None = None,
    after: int = 0,
    resume_from: Path | None = None,
    init_from: Path | None = None,
    spec: dict[str, Any] | None = None,
    **changes: Any,
) -> RunDir:
    named = {} if init_from is None else {"init_from": f"{NOBODY}/best"}
    run = job(root, language.sections(base, file, **changes), trainer="causal-lm", **named, **(spec or {}))
    env = environment(run, data=str(file), resume_from=resume_from, init_from=init_from)
    try:
        results(on_ranks(ranks, train, dies, after, env={**env, Env.WEIGHTS: str(base)}))
    except EOFError:  # from the killed rank
        assert dies is not None
    return run


def messages(run: RunDir) -> list[str]:
    return [line.text for line in lines(run) if isinstance(line, Message)]


EVERYTHING: dict[str, Any] = {
    "model": {"lora": {"rank": 4, "dropout": 0.1}},
    "training": {"epochs": 2, "per_device_batch_size": 1, "gradient_accumulation_steps": 2, "deterministic": True},
    "optimizer": {"lr": 0.01, "lookahead": {"every_steps": 2}},
    "ema": {"decay": 0.9, "ramp": 5},
}


@pytest.mark.parametrize(
    ("method", "strategy", "ranks"),
    [
        ("lora", "ddp", 2),
        ("full", "fsdp", 2),
        *(
            pytest.param(*case, marks=pytest.mark.thorough)
            for case in (
                ("lora", "ddp", 1),
                ("lora", "ddp", 3),
                ("lora", "fsdp", 2),
                ("lora", "fsdp", 3),
                ("full", "ddp", 2),
                ("full", "fsdp", 3),
                ("lora", "local_sgd", 2),
            )
        ),
    ],
)
def test_a_killed_run_ends_bit_equal_to_an_uninterrupted_one(
    tmp_path: Path, base: Path, data: Path, method: str, strategy: str, ranks: int
) -> None:
    changes: dict[str, Any] = {**EVERYTHING, "model": {**EVERYTHING["model"], "method": method}}
    changes |= {"distributed": {"strategy": strategy}}
    spec = {"checkpoint": {"every_steps": 1}}
    whole = run_job(tmp_path / "whole", base, data, ranks=ranks, spec=spec, **changes)
    killed = run_job(tmp_path / "killed", base, data, ranks=ranks, dies=ranks - 1, after=3, spec=spec, **changes)
    newest = max(
        (path.parent for path in killed.checkpoints.glob("[!.]*/manifest.json")), key=lambda path: load(path)["step"]
    )
    again = run_job(tmp_path / "again", base, data, ranks=ranks, resume_from=newest, spec=spec, **changes)
    assert same(load(again.checkpoints / "epoch-0002"), load(whole.checkpoints / "epoch-0002"))
    assert dict(points(again, "train/loss")).items() <= dict(points(whole, "train/loss")).items()
    assert points(again, "val/loss")[-1] == points(whole, "val/loss")[-1]
