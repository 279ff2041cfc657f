"""Runs of causal-lm: the same for any number of ranks, resumed, evaluated and started from checkpoints."""

from collections.abc import Callable
import json
import os
from pathlib import Path
import signal
from typing import Any

import pytest

from tests import forks
from tests.approved import Approved
from tests.trainer import language
from tests.trainer.bases import tiny_base
from tests.trainer.ranks import environment, job, on_ranks, results
from tests.trainer.runs import lines, load, points, same
import torchyard
from torchyard.contract.attempts.events import Message, Remeasured, Shown
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.contract.errors import DataError
from trainer import __main__ as trainer
from trainer.evaluate import evaluate

forks.preload("tests.trainer.transformers_loaded")
NOBODY = f"job_{'0' * 32}"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_base(tmp_path_factory.mktemp("bases") / "tiny")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return language.prompts(tmp_path_factory.mktemp("data") / "data.jsonl", count=20)


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
    above: str | None = None,
    **changes: Any,
) -> RunDir:
    named = {} if init_from is None else {"init_from": f"{NOBODY}/best"}
    run = job(root, language.sections(base, file, **changes), trainer="causal-lm", **named, **(spec or {}))
    env = environment(run, data=str(file), resume_from=resume_from, init_from=init_from)
    env |= {} if above is None else {Env.SHARD_ABOVE: above}
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


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("method", "strategy", "ranks"),
    [
        ("lora", "ddp", 2),
        ("lora", "ddp", 1),
        ("lora", "ddp", 3),
        ("lora", "fsdp", 2),
        ("lora", "fsdp", 3),
        ("full", "ddp", 2),
        ("full", "fsdp", 2),
        ("full", "fsdp", 3),
        ("lora", "local_sgd", 2),
    ],
)
def test_a_killed_run_ends_bit_equal_to_an_uninterrupted_one(
    tmp_path: Path, base: Path, *, method: str, strategy: str, ranks: int
) -> None:
    data = language.prompts(tmp_path / "data.jsonl", count=12 * ranks)
    changes: dict[str, Any] = {**EVERYTHING, "model": {**EVERYTHING["model"], "method": method}}
    changes |= {"distributed": {"strategy": strategy}}
    spec = {"checkpoint": {"every_steps": 1}}
    whole = run_job(tmp_path / "whole", base, data, ranks=ranks, spec=spec, **changes)
    after = 1 if strategy == "local_sgd" else 3  # of the steps in which ranks meet
    killed = run_job(tmp_path / "killed", base, data, ranks=ranks, dies=ranks - 1, after=after, spec=spec, **changes)
    newest = max(
        (path.parent for path in killed.checkpoints.glob("[!.]*/manifest.json")), key=lambda path: load(path)["step"]
    )
    assert not (killed.checkpoints / "epoch-0002").exists()
    again = run_job(tmp_path / "again", base, data, ranks=ranks, resume_from=newest, spec=spec, **changes)
    assert same(load(again.checkpoints / "epoch-0002"), load(whole.checkpoints / "epoch-0002"))
    assert dict(points(again, "train/loss")).items() <= dict(points(whole, "train/loss")).items()
    assert points(again, "val/loss")[-1] == points(whole, "val/loss")[-1]


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_run_in_parts_is_resumed_measured_used_and_started_from_as_a_whole_one(
    tmp_path: Path, base: Path, data: Path, method: str
) -> None:
    changes: dict[str, Any] = {**EVERYTHING, "model": {**EVERYTHING["model"], "method": method}}
    changes |= {"distributed": {"strategy": "fsdp"}}
    whole = run_job(tmp_path / "whole", base, data, ranks=2, **changes)
    parts = run_job(tmp_path / "parts", base, data, ranks=2, above="0", **changes)
    folder, end = parts.checkpoints / "epoch-0001", whole.checkpoints / "epoch-0002"
    assert not (folder / "state.pt").exists()
    again = run_job(tmp_path / "again", base, data, ranks=2, resume_from=folder, **changes)
    assert same(load(again.checkpoints / "epoch-0002"), load(end))
    (measured,) = [line for line in lines(parts) if isinstance(line, Remeasured)]
    assert measured.metrics["val/loss"] == pytest.approx(points(whole, "val/loss")[-1][1], rel=1e-4)
    path = parts.checkpoints / "epoch-0002"
    tree = str(base) if method == "lora" else None
    ours, theirs = (torchyard.load(of, device="cpu", base=tree) for of in (path, end / "state.pt"))
    assert same(dict(ours.module.state_dict()), dict(theirs.module.state_dict()))
    for ranks in (1, 3):
        started = run_job(tmp_path / f"started-{ranks}", base, data, ranks=ranks, init_from=path, **changes)
        (text,) = [text for text in messages(started) if "start from the checkpoint" in text]
        assert "new: " not in text and "left out" not in text


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, base: Path, data: Path) -> RunDir:
    """A run of one process on a base, with an average."""
    return run_job(tmp_path_factory.mktemp("saved"), base, data, ema={"decay": 0.5, "ramp": 0})


@pytest.mark.thorough
def test_a_checkpoint_is_measured_again_on_its_base(saved: RunDir, base: Path, data: Path) -> None:
    checkpoint = saved.checkpoints / "epoch-0002"
    metrics = load(checkpoint)["metrics"]
    found = evaluate(checkpoint / "state.pt", source=str(data), base=str(base), device="cpu")
    assert found["loss"] == pytest.approx(metrics["val/loss"], rel=1e-6)
    assert found["perplexity"] == pytest.approx(metrics["val/perplexity"], rel=1e-5)
    (again,) = [line for line in lines(saved) if isinstance(line, Remeasured)]
    assert again.metrics["val/loss"] == pytest.approx(metrics["val/loss"], rel=1e-6)
    assert not [text for text in messages(saved) if "re-evaluated" in text]
    assert "samples.json" in {path.name for path in checkpoint.iterdir()}
    assert {line.key for line in lines(saved) if isinstance(line, Shown)} == {"samples"}
    assert len(points(saved, "train/tokens_per_second")) > 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("method", "strategy", "ranks"),
    [
        ("lora", "ddp", 2),
        ("lora", "ddp", 3),
        ("full", "ddp", 3),
        ("full", "fsdp", 2),
        ("lora", "fsdp", 3),
    ],
)
def test_the_curve_is_the_same_for_any_number_of_ranks(
    tmp_path: Path, base: Path, data: Path, *, method: str, strategy: str, ranks: int
) -> None:
    def curve(folder: str, *, ranks: int, accumulate: int, strategy: str = "ddp") -> dict[str, list[tuple[int, float]]]:
        run = run_job(
            tmp_path / folder,
            base,
            data,
            ranks=ranks,
            model={"method": method},
            training={"per_device_batch_size": 1, "gradient_accumulation_steps": accumulate},
            distributed={"strategy": strategy},
        )
        return {key: points(run, key) for key in ("train/loss", "train/grad_norm", "val/loss")}

    alone, together = (
        curve("1", ranks=1, accumulate=6),
        curve("n", ranks=ranks, accumulate=6 // ranks, strategy=strategy),
    )
    assert len(alone["train/loss"]) >= 4
    for key, values in alone.items():
        for (step, value), (at, other) in zip(values, together[key], strict=True):
            assert (at, other) == (step, pytest.approx(value, rel=2e-5)), key


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_a_run_starts_from_an_adapter_and_measures_one(
    tmp_path: Path, base: Path, data: Path, saved: RunDir, ranks: int
) -> None:
    before = saved.checkpoints / "epoch-0002"
    step: dict[str, Any] = {"training": {"max_steps": 1}, "evaluation": {"samples": 0, "remeasure_best": False}}
    started = run_job(tmp_path / "1", base, data, init_from=before, optimizer={"lr": 1e-9}, **step)
    (text,) = [text for text in messages(started) if "start from the checkpoint" in text]
    assert text.startswith("28 of ")
    assert "left out" not in text
    metrics = load(before)["metrics"]
    assert points(started, "val/loss")[-1][1] == pytest.approx(metrics["val/loss"], rel=1e-4)
    measured = run_job(
        tmp_path / "2",
        base,
        data,
        init_from=before,
        ranks=ranks,
        spec={"mode": "evaluate"},
        distributed={"strategy": "fsdp" if ranks > 1 else "ddp"},
    )
    assert points(measured, "val/loss") == [(load(before)["step"], pytest.approx(metrics["val/loss"], rel=1e-6))]
    assert json.loads((measured.artifacts / "samples.json").read_text())


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.thorough
def test_a_run_starts_from_all_weights_of_another(tmp_path: Path, base: Path, data: Path, strategy: str) -> None:
    whole: dict[str, Any] = {"model": {"method": "full"}}
    before = run_job(tmp_path / "1", base, data, **whole).checkpoints / "epoch-0002"
    whole |= {"distributed": {"strategy": strategy}, "training": {"max_steps": 1}, "optimizer": {"lr": 1e-9}}
    started = run_job(tmp_path / "2", base, data, ranks=2, init_from=before, **whole)
    assert [text for text in messages(started) if "parameters start from the checkpoint" in text]
    assert points(started, "val/loss")[-1][1] == pytest.approx(load(before)["metrics"]["val/loss"], rel=1e-4)


def test_an_adapters_checkpoint_has_little_more_than_the_adapter_and_its_moments(tmp_path: Path, data: Path) -> None:
    base = tiny_base(tmp_path / "base", hidden_size=512, intermediate_size=1024)
    config: dict[str, Any] = {
        "model": {"lora": {"rank": 64}},
        "training": {"max_steps": 1, "epochs": 1},
        "evaluation": {"samples": 0, "remeasure_best": False},
    }
    (folder,) = run_job(tmp_path / "run", base, data, **config).checkpoints.iterdir()
    adapter = sum(tensor.nbytes for tensor in load(folder)["model"].values())
    assert adapter > 4_000_000
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 4.2 * adapter
    assert (base / "model.safetensors").stat().st_size > 4.2 * adapter


def test_a_run_resumes_on_its_own_base_alone(tmp_path: Path, data: Path, saved: RunDir, approved: Approved) -> None:
    other = tiny_base(tmp_path / "other", seed=8)
    with pytest.raises(DataError) as raised:
        run_job(tmp_path / "run", other, data, resume_from=saved.checkpoints / "epoch-0001")
    assert str(raised.value) == approved("message", tmp_path=tmp_path)
