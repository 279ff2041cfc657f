"""The task of causal-lm: batches, metrics, samples, and what a checkpoint has."""

from collections.abc import Iterator
import json
import math
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
import torch
from torch.nn import functional

from tests.approved import Approved
from tests.trainer import language
from tests.trainer.bases import tiny_base
from tests.trainer.rendering import rendered_here
from tests.trainer.shown import shown
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.errors import ConfigError, DataError
from trainer.card import Card, describe
from trainer.randomness import random_state
from trainer.recipes.causal import LanguageTask, make_task
from trainer.recipes.continuations import KEY
from trainer.sampler import TrainSampler
from trainer.weights.language import check_start
from trainer.world import World

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def rendered() -> Iterator[None]:
    """Renders chat templates in this process, without starting another one."""
    with rendered_here():
        yield


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_base(tmp_path_factory.mktemp("bases") / "tiny")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return language.prompts(tmp_path_factory.mktemp("data") / "data.jsonl")


def task(base: Path, file: Path, *, metadata: dict[str, Any] | None = None, **changes: Any) -> LanguageTask:
    torch.manual_seed(0)
    return make_task(language.recipe(base, file, **changes), source=str(file), device=CPU, metadata=metadata)


@pytest.mark.parametrize("method", ["lora", pytest.param("full", marks=pytest.mark.thorough)])
def test_the_loss_is_the_mean_over_counted_tokens_for_any_batch(base: Path, data: Path, method: str) -> None:
    found = task(base, data, model={"method": method})
    model: Any = found.model
    total, count = 0.0, 0
    with torch.no_grad():
        for batch in found.data.val.batches(list(torch.arange(found.validation_samples).split(1)), device=CPU):
            rows = {name: batch.inputs[name] for name in ("input_ids", "position_ids")}
            logits = model(**rows, use_cache=False).logits
            places, labels = batch.inputs["places"], batch.targets
            total += float(functional.cross_entropy(logits.flatten(0, 1)[places], labels, reduction="sum"))
            count += len(labels)
    for batch_size in (1, 3, 50):
        metrics = found.evaluate(None, batch_size=batch_size).metrics
        assert metrics["val/loss"] == pytest.approx(total / count, rel=1e-6)
        assert metrics["val/perplexity"] == pytest.approx(math.exp(total / count), rel=1e-5)
    assert model.training


def test_perplexity_is_infinite_where_it_is_no_number(base: Path, data: Path) -> None:
    found = task(base, data, model={"method": "full"}, evaluation={"samples": 0})
    head: Any = found.model
    with torch.no_grad():
        head.lm_head.weight.mul_(1e5)
    metrics = found.evaluate(None).metrics
    assert metrics["val/loss"] > 1000
    assert metrics["val/perplexity"] == math.inf


def test_what_is_counted_is_said(base: Path, data: Path) -> None:
    found = task(base, data)
    counted, tokens = int(found.counts.sum()), int(found.data.train.lengths.sum())
    padding = 1 - tokens / (48 * found.samples)
    assert found.description == (
        f"{found.samples} training and {found.validation_samples} validation sequences of at most 48 tokens, "
        f"{padding:.1%} padding; {counted:,} of {tokens:,} training tokens are counted"
    )
    assert "padding" not in task(base, data, data={"packing": False}).description


@pytest.mark.parametrize("method", ["lora", pytest.param("full", marks=pytest.mark.thorough)])
def test_a_checkpoint_makes_the_same_task_again(base: Path, data: Path, method: str) -> None:
    before = task(base, data, model={"method": method})
    with torch.no_grad():
        for parameter in before.model.parameters():
            parameter.add_(0.01) if parameter.requires_grad else None
    state: dict[str, Any] = {**before.metadata, "model": before.model.state_dict(), "raw": None}
    again = task(base, data, model={"method": method}, metadata=state)
    again.model.load_state_dict(state["model"])
    assert again.metadata == before.metadata
    assert again.evaluate(None).metrics == before.evaluate(None).metrics
    adapted = {name for name in state["model"] if ".lora_" in name}
    assert adapted == (set(state["model"]) if method == "lora" else set())
    assert ("tokenizer" in before.metadata, "adapter" in before.metadata) == (method == "full", method == "lora")


@pytest.mark.parametrize("kind", ["llama", pytest.param("gpt2", marks=pytest.mark.thorough)])
def test_an_adapter_goes_on_its_own_base_alone(base: Path, data: Path, tmp_path: Path, kind: str) -> None:
    before = task(base, data)
    other = tiny_base(tmp_path / "other", kind=kind, seed=8)
    said = r"the adapter was trained on tiny \(a llama, digest .*other is another base \(digest"
    with pytest.raises(DataError, match=said) as caught:
        task(other, data, metadata=before.metadata)
    assert "\n" not in caught.value.message


def test_files_say_what_a_checkpoint_is(base: Path, data: Path) -> None:
    adapter = json.loads(task(base, data).files["adapter_config.json"])  # pyright: ignore[reportArgumentType]
    assert (adapter["r"], adapter["base_model_name_or_path"]) == (4, "tiny")
    whole = task(base, data, model={"method": "full"}).files
    assert set(whole) == {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}


def test_a_sequence_longer_than_the_base_takes_is_refused(base: Path, data: Path) -> None:
    with pytest.raises(ConfigError, match=r"data.max_length is 257, and .*tiny takes 256 tokens at most"):
        task(base, data, data={"max_length": 257})


def test_a_base_that_is_a_bundle_needs_its_folder(base: Path, data: Path, approved: Approved) -> None:
    weights = f"bundle:sha256:{'0' * 64}"
    with pytest.raises(ConfigError) as raised:
        task(base, data, model={"weights": weights})
    assert str(raised.value) == approved("message")


@pytest.mark.parametrize("kind", ["llama", pytest.param("gpt2", marks=pytest.mark.thorough)])
def test_the_operations_of_a_model_without_weights_are_those_of_one_with_them(
    kind: str, data: Path, tmp_path: Path
) -> None:
    base, world = tiny_base(tmp_path / "base", kind=kind), World(rank=0, size=1, local_size=1, device=CPU)
    cards: list[Card] = []
    for strategy in ("ddp", "fsdp"):
        found = task(base, data, distributed={"strategy": strategy})
        sampler = TrainSampler(found.samples, global_batch=8, batch_size=8)
        cards.append(describe(found, sampler=sampler, world=world, precision="fp32", data_hash=None))
        assert any(item.is_meta for item in found.model.parameters()) is (strategy == "fsdp")
    assert cards[0].flops_per_sample == cards[1].flops_per_sample is not None
    assert cards[1].inference_seconds is None


def test_samples_are_the_likeliest_tokens_and_change_nothing(base: Path, data: Path) -> None:
    found = task(base, data, evaluation={"samples": 3, "new_tokens": 6})
    weights = {name: value.clone() for name, value in found.model.state_dict().items()}
    torch.manual_seed(5)
    before = random_state()
    evaluation = found.evaluate(None)
    assert all(torch.equal(value, weights[name]) for name, value in found.model.state_dict().items())
    assert str(random_state()) == str(before)
    samples = json.loads(evaluation.files["samples.json"])  # pyright: ignore[reportArgumentType]
    model: Any = found.model
    for sample, prompt in zip(samples, found.data.val.prompts(3), strict=True):
        ids = torch.tensor([prompt.tokens])
        whole = model.eval().generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False
        )
        expected = found.origin.tokenizer.decode(whole[0, len(prompt.tokens) :], skip_special_tokens=True)
        assert sample["continuation"] == expected
        assert sample["prompt"] == found.origin.tokenizer.decode(prompt.tokens)
    assert found.evaluate(None).files == evaluation.files
    assert task(base, data, evaluation={"samples": 0}).evaluate(None).files == {}


def test_what_is_shown_has_prompt_continuation_and_how_the_example_goes_on(
    base: Path, data: Path, tmp_path: Path
) -> None:
    evaluation = task(base, data, evaluation={"samples": 2, "new_tokens": 6}).evaluate(None)
    samples = json.loads(evaluation.files["samples.json"])  # pyright: ignore[reportArgumentType]
    lines = shown(RunDir(tmp_path / "run"), KEY, evaluation=evaluation)
    found = [
        {"prompt": line.caption, "continuation": (line.data or {})["text"], "expected": (line.data or {})["expected"]}
        for line in lines
    ]
    assert found == samples
    assert all(sample["expected"] for sample in samples)


def test_a_sample_ends_with_what_ends_a_turn_though_texts_end_otherwise(tmp_path: Path) -> None:
    base = tiny_base(tmp_path / "base", template="{% for m in messages %}{{ m['content'] }}<pad>\n{% endfor %}")
    found = task(base, language.messages(tmp_path / "data.jsonl"), evaluation={"samples": 2, "new_tokens": 8})
    model: Any = found.model
    with torch.no_grad():
        model.model.norm.weight.zero_()  # all logits are 0: the first token, <pad>, is the likeliest
    steps: list[Any] = []

    def count(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        steps.extend([] if args else [kwargs["input_ids"].shape])

    model.register_forward_pre_hook(count, with_kwargs=True)
    found.evaluate(None)
    assert len(steps) == 1


@pytest.mark.thorough
def test_samples_of_a_compiled_model_compile_nothing(base: Path, data: Path) -> None:
    found = task(base, data, evaluation={"samples": 2, "new_tokens": 4})
    expected = found.evaluate(None).files
    compiled: list[Any] = []

    def keep(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    found.model.compile(backend=keep)
    assert found.evaluate(None, batch_size=found.validation_samples).files == expected
    assert len(compiled) == 1


def test_a_model_without_probabilities_is_measured_and_makes_no_samples(base: Path, data: Path) -> None:
    found = task(base, data, model={"method": "full"}, evaluation={"samples": 2, "new_tokens": 16})
    model: Any = found.model
    with torch.no_grad():
        model.model.norm.weight.fill_(torch.inf)
    calls: list[None] = []
    evaluation = found.evaluate(None, on_batch=lambda: calls.append(None), batch_size=found.validation_samples)
    assert math.isnan(evaluation.metrics["val/loss"])
    samples = json.loads(evaluation.files["samples.json"])  # pyright: ignore[reportArgumentType]
    assert [sample["continuation"] for sample in samples] == ["", ""]
    assert len(calls) == 1
    assert model.training


def gradient(found: LanguageTask) -> dict[str, torch.Tensor]:
    """Returns the gradient of the mean over all counted training tokens."""
    total = int(found.counts.sum())
    rows = list(torch.arange(found.samples).split(2))
    for batch in found.training_batches(rows, epoch=1):
        (found.loss(found.model(batch.inputs), batch.targets) * (len(batch.targets) / total)).backward()
    return {name: item.grad for name, item in found.model.named_parameters() if item.grad is not None}


@pytest.mark.parametrize("method", ["lora", pytest.param("full", marks=pytest.mark.thorough)])
def test_packed_documents_have_the_gradient_of_separate_ones(base: Path, data: Path, method: str) -> None:
    packed, separate = (
        task(base, data, model={"method": method}, data={"packing": packing}) for packing in (True, False)
    )
    assert packed.samples < separate.samples == 32
    assert int(packed.counts.sum()) == int(separate.counts.sum())
    ours, theirs = gradient(packed), gradient(separate)
    assert ours.keys() == theirs.keys()
    assert any(bool(value.abs().max() > 1e-3) for value in ours.values())
    for name, value in ours.items():
        assert torch.allclose(value, theirs[name], rtol=0, atol=1e-6), name


def nan_in(folder: Path) -> Path:
    """Writes a base with a weight that is no number."""
    file = tiny_base(folder) / "model.safetensors"
    tensors = load_file(file)
    tensors["model.norm.weight"][3] = torch.nan
    save_file(tensors, file, metadata={"format": "pt"})
    return folder


BAD_LINES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no completion": ([{"prompt": "Who?"}] * 9, "line 1: has prompt and no completion"),
    "blank completion": ([{"prompt": "Who?", "completion": " "}] * 9, "line 1: completion is blank"),
    "all masked": (
        [{"prompt": "word " * 200, "completion": "end"}] * 9,
        "training has no example: all 7 are left out",
    ),
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_bad_examples_are_an_error_of_the_data_in_one_line(base: Path, tmp_path: Path, case: str) -> None:
    lines, expected = BAD_LINES[case]
    file = language.written(tmp_path / "bad.jsonl", lines)
    with pytest.raises(DataError, match=expected) as caught:
        task(base, file)
    assert "\n" not in caught.value.message


def test_a_base_with_weights_that_are_no_numbers_is_refused_by_name(tmp_path: Path, data: Path) -> None:
    with pytest.raises(DataError, match=r"model\.norm\.weight") as caught:
        task(nan_in(tmp_path / "base"), data)
    assert "\n" not in caught.value.message


def test_bad_examples_are_found_before_the_weights_are_read(tmp_path: Path, approved: Approved) -> None:
    base = nan_in(tmp_path / "base")
    file = language.written(tmp_path / "bad.jsonl", [{"prompt": "Who?"}])
    with pytest.raises(DataError) as raised:
        task(base, file)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_what_a_run_starts_from_must_fit(base: Path, data: Path, tmp_path: Path, approved: Approved) -> None:
    adapter = task(base, data).metadata
    larger = task(base, data, model={"lora": {"rank": 8}}).metadata
    louder = task(base, data, model={"lora": {"rank": 4, "alpha": 64.0}}).metadata
    whole = task(base, data, model={"method": "full"}).metadata
    other = task(tiny_base(tmp_path / "gpt", kind="gpt2"), data).metadata
    assert check_start(adapter, adapter) is None
    assert check_start(whole, whole) is None
    assert check_start(louder, adapter) == approved("check_start")
    with pytest.raises(ConfigError) as raised:
        check_start(larger, adapter)
    assert str(raised.value) == approved("message")
    with pytest.raises(DataError) as raised:
        check_start(adapter, other)
    assert str(raised.value) == approved("init from adapter")
    with pytest.raises(ConfigError) as raised:
        check_start(adapter, whole)
    assert str(raised.value) == approved("init from checkpoint")
    with pytest.raises(ConfigError) as raised:
        check_start(whole, adapter)
    assert str(raised.value) == approved("init from checkpoint again")


FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "no adapter": ({"adapter": None}, "it has an adapter or a tokenizer"),
    "a name": ({"adapter": "mine"}, "adapter"),
    "no digest": ({"adapter": {"base": {"name": "tiny"}}}, "adapter.base.digest"),
    "a form": ({"form": "poem"}, "form"),
}


@pytest.mark.parametrize("case", FORGED)
def test_what_a_forged_checkpoint_says_is_an_error_in_one_line(base: Path, data: Path, case: str) -> None:
    changed, expected = FORGED[case]
    ours = task(base, data)
    theirs = {**ours.metadata, **changed}
    for use in (
        lambda: check_start(ours.metadata, theirs),
        lambda: task(base, data, metadata={**theirs, "model": ours.model.state_dict()}),
    ):
        with pytest.raises(DataError, match=expected) as caught:
            use()
        assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"model_type": "bert"}, "model_type is 'bert'"),
        ({"num_hidden_layers": 10**9}, "layers"),
        ({"vocab_size": 10**12}, "needs"),
    ],
)
def test_a_forged_model_takes_no_memory(base: Path, data: Path, change: dict[str, Any], expected: str) -> None:
    whole = task(base, data, model={"method": "full"})
    state = {**whole.metadata, "model": whole.model.state_dict()}
    state["model_config"] = {**state["model_config"], **change}
    with pytest.raises(DataError, match=expected):
        task(base, data, model={"method": "full"}, metadata=state)
