"""Checkpoints of language models that a stranger wrote: every use refuses them in one line, and takes no memory."""

from collections.abc import Callable
from dataclasses import dataclass, replace
import json
from pathlib import Path
import resource
from typing import Any

import pytest
import torch

from tests.approved import Approved
from tests.torchyard.models.languages import State
from tests.trainer import language
from tests.trainer.bases import tiny_base
import torchyard
from torchyard.contract.attempts.rundir import Env
from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import CausalLm
from torchyard.models import checkpoint
from torchyard.models.texts import MOST_TOKENIZER_CHARACTERS
from torchyard.run import Run
from trainer.evaluate import measured
from trainer.evaluation_job import _task, with_model_of  # pyright: ignore[reportPrivateUsage]
from trainer.recipes.causal import LanguageTask, make_task
from trainer.weights.starting import fill_from, load_weights, read_initial, take_over
from trainer.world import World

CPU = torch.device("cpu")
MOST_GROWTH = 512 << 20
"""Bytes that the uses of a checkpoint may take."""
MOST_CHARACTERS = 1500


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_base(tmp_path_factory.mktemp("bases") / "tiny")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return language.prompts(tmp_path_factory.mktemp("data") / "data.jsonl", count=12)


@pytest.fixture(scope="module")
def tasks(base: Path, data: Path) -> dict[str, LanguageTask]:
    return {method: made(base, data, method) for method in ("lora", "full")}


def made(base: Path, data: Path, method: str, metadata: State | None = None) -> LanguageTask:
    config = language.recipe(base, data, model={"method": method})
    return make_task(config, source=str(data), device=CPU, metadata=metadata)


def state_of(task: LanguageTask) -> State:
    config = task.config.model_dump(mode="json")
    model = {name: value.detach().clone() for name, value in task.model.state_dict().items()}
    recipe = {"format": 1, "recipe": "causal-lm", "config": config, "epoch": 1, "step": 3, "metrics": {}}
    return {**recipe, **task.metadata, "model": model, "raw": None}


def run_of(file: Path, base: Path, data: Path) -> Run:
    """Returns a run that starts from a checkpoint."""
    config = file.parent / "config.json"
    config.write_text(json.dumps({"trainer": "causal-lm"}))
    return Run({Env.CONFIG: str(config), Env.INIT_FROM: str(file.parent), Env.DATA: str(data), Env.WEIGHTS: str(base)})


def load(file: Path, base: Path, _: Path, task: LanguageTask) -> None:
    torchyard.load(file, device="cpu", base=base if task.config.model.method == "lora" else None)


def measure(file: Path, base: Path, data: Path, _: LanguageTask) -> None:
    measured(file, source=str(data), base=str(base), device=CPU)


def start(file: Path, base: Path, data: Path, task: LanguageTask) -> None:
    run = run_of(file, base, data)
    state = read_initial(run)
    assert state is not None
    config = take_over(task.config, state, fresh=True)
    fill_from(replace(task, config=config), state, run=run)


def resume(file: Path, base: Path, data: Path, task: LanguageTask) -> None:
    state = checkpoint.read(file)
    config = take_over(task.config, state, fresh=False)
    assert isinstance(config, CausalLm)
    found = make_task(config, source=str(data), device=CPU, metadata=state)
    load_weights(found, state["model"])


def evaluate(file: Path, base: Path, data: Path, task: LanguageTask) -> None:
    run = run_of(file, base, data)
    state = read_initial(run)
    assert state is not None
    config = with_model_of(task.config, state)
    _task(config, state, run=run, world=World(rank=0, size=1, local_size=1, device=CPU), compute=None)


USES: dict[str, Callable[[Path, Path, Path, LanguageTask], None]] = {
    "load": load,
    "measure": measure,
    "init_from": start,
    "resume": resume,
    "mode evaluate": evaluate,
}


def without(*keys: str) -> Callable[[State], State]:
    return lambda state: {key: value for key, value in state.items() if key not in keys}


def having(section: str, **values: Any) -> Callable[[State], State]:
    return lambda state: {**state, section: {**state[section], **values}}


def updating(**values: Any) -> Callable[[State], State]:
    """Changes what the configuration says of the updates."""

    def change(state: State) -> State:
        model = state["config"]["model"]
        return {**state, "config": {**state["config"], "model": {**model, "lora": {**model["lora"], **values}}}}

    return change


@dataclass(frozen=True)
class Case:
    method: str
    change: Callable[[State], State]
    message: str
    unread_by: tuple[str, ...] = ()
    """The uses that take nothing but fitting tensors, or that have settings of their own."""
    uses: tuple[str, ...] = tuple(USES)


OF_THE_CONFIGURATION = "its configuration is not valid in this version"
CASES = {
    "a type that is none of ours": Case("full", having("model_config", model_type="bert"), "'bert'", ("init_from",)),
    "10**9 layers": Case("full", having("model_config", num_hidden_layers=10**9), "1000000000 layers", ("init_from",)),
    "a huge vocabulary": Case("full", having("model_config", vocab_size=10**12), "1000000000000", ("init_from",)),
    "no shape": Case("full", having("model_config", model_type=None), "'None'", ("init_from",)),
    "a shape that is a list": Case("full", lambda state: {**state, "model_config": [1]}, "model_config: "),
    "a long tokenizer": Case(
        "full",
        having("tokenizer", content="a" * (MOST_TOKENIZER_CHARACTERS + 1)),
        "tokenizer.content: ",
        uses=("load",),  # 64 MiB to read: "no tokenizer" shows that each use checks the same
    ),
    "no tokenizer": Case("full", without("tokenizer"), "an adapter or a tokenizer"),
    "no form": Case("full", without("form"), "form: Field required"),
    "no weights": Case("full", lambda state: {**state, "model": {}}, "0 tensors|no weight .* fits"),
    "no adapter": Case("lora", without("adapter"), "an adapter or a tokenizer"),
    "no base": Case("lora", lambda state: {**state, "adapter": {"rank": 4}}, "adapter.base: Field required"),
    "no updates": Case("lora", lambda state: {**state, "model": {}}, "no such tensor|no weight .* fits"),
    "rank 10**9": Case("lora", updating(rank=10**9), OF_THE_CONFIGURATION),
    "rank 4096": Case("lora", updating(rank=4096), r"of \(4096, 32\)", ("init_from", "resume")),
    "alpha that is no number": Case("lora", updating(alpha=float("nan")), OF_THE_CONFIGURATION),
    "many targets": Case("lora", updating(targets=["q_proj"] * 20_000), OF_THE_CONFIGURATION),
    "no configuration": Case("lora", lambda state: {**state, "config": {}}, OF_THE_CONFIGURATION),
    "a configuration that is a list": Case("lora", lambda state: {**state, "config": [1]}, OF_THE_CONFIGURATION),
}


@pytest.mark.parametrize("case", CASES)
def test_a_hostile_checkpoint_is_refused_in_one_line(
    tasks: dict[str, LanguageTask], base: Path, data: Path, tmp_path: Path, case: str
) -> None:
    found = CASES[case]
    task, file = tasks[found.method], tmp_path / "state.pt"
    torch.save(found.change(state_of(task)), file)
    before = most_memory()
    for name in found.uses:
        use = USES[name]
        if name in found.unread_by:
            use(file, base, data, task)
            continue
        with pytest.raises((DataError, ConfigError), match=found.message) as caught:
            use(file, base, data, task)
        assert "\n" not in caught.value.message, name
        assert len(caught.value.message) < MOST_CHARACTERS, name
    assert most_memory() - before < MOST_GROWTH


@pytest.mark.parametrize(
    "method",
    [
        "lora",
        "full",
    ],
)
def test_weights_of_another_method_are_refused(
    tasks: dict[str, LanguageTask], base: Path, data: Path, tmp_path: Path, approved: Approved, *, method: str
) -> None:
    other = "full" if method == "lora" else "lora"
    torch.save(state_of(tasks[other]), tmp_path / "state.pt")
    with pytest.raises(ConfigError) as caught:
        start(tmp_path / "state.pt", base, data, tasks[method])
    assert caught.value.message == approved.of_row("message")


@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_checkpoint_as_it_was_written_is_used(
    tasks: dict[str, LanguageTask], base: Path, data: Path, tmp_path: Path, method: str
) -> None:
    torch.save(state_of(tasks[method]), tmp_path / "state.pt")
    for use in USES.values():
        use(tmp_path / "state.pt", base, data, tasks[method])


def most_memory() -> int:
    """Returns the most bytes that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
