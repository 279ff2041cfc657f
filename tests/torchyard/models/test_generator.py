"""Language models of checkpoints: loaded with and without a base, and what they generate."""

from collections.abc import Iterator, Mapping
import json
from pathlib import Path
import shutil
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
import torch

from tests.approved import Approved
from tests.torchyard.models.languages import State, adapter, whole
from tests.trainer.bases import END, tiny_base
from tests.trainer.rendering import rendered_here
import torchyard
from torchyard.contract.errors import ConfigError, DataError
from torchyard.models import Generator, causal
from torchyard.models.chat import MOST_TEMPLATE_BYTES
from torchyard.models.text import own_config

WEIGHTS = "model.safetensors"
PROMPTS = ["The yard", "Who asks a question that is longer than the others?", "A"]
CONVERSATION = [{"role": "user", "content": "The yard"}]


@pytest.fixture(scope="module", autouse=True)
def rendered() -> Iterator[None]:
    """Templates are rendered in this process."""
    with rendered_here():
        yield


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def states(base: Path) -> Mapping[str, State]:
    return {"adapter": adapter(base), "whole": whole(base), "chat": adapter(base, form="messages")}


@pytest.fixture(scope="module")
def models(states: Mapping[str, State], tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Generator]:
    folder = tmp_path_factory.mktemp("models")
    return {name: loaded(folder / f"{name}.pt", state) for name, state in states.items()}


def loaded(path: Path, state: State, **how: Any) -> Generator:
    torch.save(state, path)
    model = torchyard.load(path, device="cpu", **how)
    assert isinstance(model, Generator)
    return model


def refused(folder: Path, state: State, **how: Any) -> str:
    """Returns why a state cannot be loaded."""
    torch.save(state, folder / "best.pt")
    with pytest.raises(DataError) as caught:
        torchyard.load(folder / "best.pt", device="cpu", **how)
    assert "\n" not in caught.value.message
    assert "best.pt cannot be used: " in caught.value.message
    return caught.value.message


@pytest.mark.parametrize("name", ["adapter", "whole"])
def test_a_text_is_continued_as_transformers_continues_it(models: Mapping[str, Generator], name: str) -> None:
    model = models[name]
    tokenizer: Any = model.prompts.tokenizer
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        expected = model.module.generate(ids, max_new_tokens=16, do_sample=False)[0]  # pyright: ignore[reportCallIssue] theirs
        whole = tokenizer.decode(expected, skip_special_tokens=True)
        assert model.generate(prompt, max_new_tokens=16) == whole.removeprefix(prompt)


def test_a_batch_gives_what_each_prompt_gives_alone(models: Mapping[str, Generator]) -> None:
    model = models["adapter"]
    how: dict[str, Any] = {"max_new_tokens": 12, "temperature": 0.9, "top_p": 0.9, "seed": 11}
    found = model.predict(PROMPTS, batch_size=2, **how)
    assert [each.prompt for each in found] == PROMPTS
    for prompt, each in zip(PROMPTS, found, strict=True):
        assert each.text == model.generate(prompt, **how) == "".join(model.stream(prompt, **how))
    assert all(each.tokens == 12 for each in found if each.finish == "length")
    before = torch.get_rng_state()
    assert model.generate(PROMPTS[0], **{**how, "seed": 12}) != found[0].text
    assert torch.equal(torch.get_rng_state(), before)


def test_a_text_is_a_turn_of_the_user_if_the_training_had_conversations(models: Mapping[str, Generator]) -> None:
    rendered = "<|user|>The yard<|end|><|assistant|>"
    expected = models["adapter"].generate(rendered, max_new_tokens=12)
    several = models["chat"].predict([CONVERSATION, "The yard"], max_new_tokens=12)
    assert [each.text for each in several] == [expected] * 2
    read = models["adapter"].prompts.read
    assert read([CONVERSATION]) == read([rendered])
    assert models["adapter"].generate("The yard", max_new_tokens=12) != expected


def test_what_ends_a_turn_ends_an_answer_though_texts_end_otherwise(tmp_path: Path) -> None:
    base = tiny_base(tmp_path / "base", template="{% for m in messages %}{{ m['content'] }}<|user|>\n{% endfor %}")
    model = loaded(tmp_path / "best.pt", adapter(base, form="messages"))
    ids = model.prompts.tokenizer.convert_tokens_to_ids
    assert model.prompts.stops("a") == {ids(END), ids("<|user|>")}
    assert loaded(tmp_path / "best.pt", adapter(base)).prompts.stops("a") == {ids(END)}


def test_the_end_of_a_text_is_no_part_of_it(base: Path, tmp_path: Path) -> None:
    state = whole(base)
    state["model"]["lm_head.weight"].zero_()
    state["model"]["model.norm.weight"].zero_()  # all logits are 0: the first token, <pad>, is the likeliest
    state["model_config"]["eos_token_id"] = [0, 7]
    model = loaded(tmp_path / "best.pt", state)
    found = model.predict("The yard")
    assert (found.text, found.tokens, found.finish) == ("", 1, "stop")
    assert [*model.stream("The yard")] == []


def test_a_file_has_a_prompt_a_line(models: Mapping[str, Generator], tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("The yard \n\n  A\n")
    found = models["adapter"].predict(tmp_path / "prompts.txt", max_new_tokens=2)
    assert [each.prompt for each in found] == ["The yard ", "  A"]
    assert models["adapter"].predict([]) == []


@pytest.mark.parametrize(
    ("prompt", "how"),
    [
        ("", {}),
        ([], {}),
        (7, {}),
        ("\ud83d", {}),
        ([{"role": "user", "content": "\ud83d"}], {}),
        ([{"role": "user", "content": None}], {}),
        ([{"role": "user"}], {}),
        ([{"role": "user", "content": "a", "name": "b"}], {}),
        ("The yard", {"max_new_tokens": 0}),
        ("The yard", {"temperature": -1}),
        ("The yard", {"top_p": 0}),
        ("A" * 200, {"max_new_tokens": 100}),
        ("A" * 1000, {}),
        ("A", {"max_new_tokens": 256}),
    ],
)
def test_a_prompt_that_cannot_be_continued_is_refused(
    models: Mapping[str, Generator], prompt: Any, how: dict[str, Any], approved: Approved
) -> None:
    for call in (models["adapter"].generate, models["adapter"].stream):
        with pytest.raises((DataError, ConfigError)) as raised:
            call(prompt, **how)  # before the first piece
        assert str(raised.value) == approved.of_row("message")


def test_by_default_as_much_follows_as_the_model_has_room_for(models: Mapping[str, Generator]) -> None:
    """The model of docs/reference/language-models.md reads as many tokens as are generated by default."""
    generator = models["whole"]
    (tokens,) = generator.prompts.read(["A" * 100])
    prompts = ["A" * (100 + 100 * (245 - len(tokens)) // len(tokens)), "The yard"]
    room = generator.context - len(generator.prompts.read(prompts)[0])
    assert 0 < room < 16
    found = generator.predict(prompts)
    assert [each.tokens for each in found] == [room, 128]
    assert found[0] == generator.predict(prompts[0], max_new_tokens=room)
    assert found[0].text == generator.generate(prompts[0])


def test_messages_need_a_chat_template(tmp_path: Path, approved: Approved) -> None:
    base = tiny_base(tmp_path / "base", template=None)
    model = loaded(tmp_path / "best.pt", whole(base))
    with pytest.raises(DataError) as raised:
        model.generate(CONVERSATION)
    assert str(raised.value) == approved("message")


def test_of_several_chat_templates_a_checkpoint_keeps_the_default_one(base: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(base, tmp_path / "base"))
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    named = [{"name": "rag", "template": "{{ 1 }}"}, {"name": "default", "template": template}]
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": named}))
    state = whole(folder, form="messages")
    assert state["tokenizer"]["chat_template"] == template
    assert loaded(tmp_path / "best.pt", state).generate(CONVERSATION, max_new_tokens=2) is not None


def test_numbers_that_are_not_finite_are_refused(base: Path, tmp_path: Path, approved: Approved) -> None:
    state = whole(base)
    state["model"]["model.norm.weight"].fill_(3e38)
    state["model"]["lm_head.weight"].fill_(3e38)
    model = loaded(tmp_path / "best.pt", state)
    with pytest.raises(DataError) as raised:
        model.generate("The yard")
    assert str(raised.value) == approved("message")


def test_loading_changes_no_random_state(states: Mapping[str, State], tmp_path: Path) -> None:
    before = torch.get_rng_state()
    loaded(tmp_path / "best.pt", states["adapter"])
    assert torch.equal(torch.get_rng_state(), before)


def test_the_card_says_what_the_adapter_is(models: Mapping[str, Generator], base: Path) -> None:
    card = models["adapter"].card
    assert (card["recipe"], card["model"], card["base"]) == ("causal-lm", "llama", base.as_uri())
    assert {key: card["adapter"][key] for key in ("rank", "alpha", "targets")} == {
        "rank": 4,
        "alpha": 8,
        "targets": "all-linear",
    }
    assert card["adapter"]["parameters"] == sum(tensor.numel() for tensor in adapter(base)["model"].values())
    whole = models["whole"].card
    assert (whole["parameters"], "adapter" in whole) == (card["parameters"], False)
    json.dumps(card)


def test_a_base_that_was_moved_is_given(
    states: Mapping[str, State], models: Mapping[str, Generator], base: Path, tmp_path: Path, approved: Approved
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(base, moved)
    expected = models["adapter"].generate("The yard", max_new_tokens=8)
    state = {**states["adapter"]}
    state["config"] = json.loads(json.dumps(state["config"]))
    for weights in ("file:///absent/base", f"bundle:sha256:{'0' * 64}"):
        state["config"]["model"]["weights"] = weights
        message = refused(tmp_path, state)
        assert message == approved("message", tmp_path=tmp_path, as_uri=base.as_uri()[:100])
        assert loaded(tmp_path / "best.pt", state, base=moved).generate("The yard", max_new_tokens=8) == expected


@pytest.mark.parametrize("dtype", [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.thorough)])
def test_a_base_of_half_precision_is_computed_in_single_precision_on_the_cpu(
    base: Path, tmp_path: Path, dtype: torch.dtype
) -> None:
    halves = {name: value.to(dtype) for name, value in load_file(base / WEIGHTS).items()}
    texts: list[str] = []
    for name, tensors in (("half", halves), ("same", {name: value.float() for name, value in halves.items()})):
        folder = Path(shutil.copytree(base, tmp_path / name))
        save_file(tensors, folder / WEIGHTS)
        model = loaded(tmp_path / f"{name}.pt", adapter(folder))
        assert {value.dtype for value in model.module.parameters()} == {torch.float32}
        texts += [generation.text for generation in model.predict(PROMPTS, max_new_tokens=8)]
    assert texts[: len(PROMPTS)] == texts[len(PROMPTS) :]


def test_another_base_is_refused_by_name(
    states: Mapping[str, State], base: Path, tmp_path: Path, approved: Approved
) -> None:
    other = tiny_base(tmp_path / "other", seed=8)
    message = refused(tmp_path, states["adapter"], base=other)
    digest = states["adapter"]["adapter"]["base"]["digest"][:12]
    assert message == approved("message", tmp_path=tmp_path, as_uri=base.as_uri()[:100], digest=digest, other=other)
    assert f"{tmp_path / 'absent'}" in refused(tmp_path, states["adapter"], base=tmp_path / "absent")


def test_a_checkpoint_that_needs_no_base_refuses_one(
    states: Mapping[str, State], base: Path, tmp_path: Path, approved: Approved
) -> None:
    assert refused(tmp_path, states["whole"], base=base) == approved("refused", tmp_path=tmp_path)


def changed(state: State, change: State) -> State:
    return {**state, **{key: {**state[key], **value} if key in state else value for key, value in change.items()}}


@pytest.mark.parametrize(
    "change",
    [
        {"model_config": {"model_type": "bert"}},
        {"model_config": {"model_type": ["llama"]}},
        {"model_config": {"num_hidden_layers": 10**9}},
        {"model_config": {"num_hidden_layers": True}},
        {"model_config": {"vocab_size": 10**12}},
        {"model_config": {"hidden_size": 10**9}},
        {"model_config": {"hidden_act": "os.system"}},
        {"model_config": {"num_attention_heads": 0}},
        {"tokenizer": {"content": "{}"}},
        {"tokenizer": {"content": "[" * 100_000}},
        {"tokenizer": {"content": 7}},
        {"tokenizer": {"roles": "<|end|>"}},
        {"tokenizer": {"roles": {"eos_token": "<new>"}}},
        {"tokenizer": {"chat_template": "a" * (MOST_TEMPLATE_BYTES + 1)}},
        {"adapter": {"base": {"digest": "0" * 64, "name": "it"}}},
        {"model": {"more.weight": torch.zeros(1)}},
        {"model": {"model.norm.weight": torch.zeros(7)}},
        {"model": {"model.norm.weight": torch.full((32,), torch.nan)}},
    ],
)
def test_a_model_that_cannot_be_is_refused(
    states: Mapping[str, State], tmp_path: Path, change: State, approved: Approved
) -> None:
    assert refused(tmp_path, changed(states["whole"], change)) == approved.of_row("refused", tmp_path=tmp_path)


Q = "model.layers.0.self_attn.q_proj.lora_A.default.weight"


@pytest.mark.parametrize(
    "change",
    [
        {"adapter": {"base": {"digest": "x", "name": "it"}}},
        {"adapter": {"base": {"digest": "0" * 64, "name": 7}}},
        {"model": {Q: torch.zeros(9999, 32)}},
        {"model": {Q: torch.full((4, 32), torch.inf)}},
        {"model": {"model.norm.weight": torch.zeros(32)}},
    ],
)
def test_an_adapter_that_cannot_be_is_refused(
    states: Mapping[str, State], tmp_path: Path, change: State, approved: Approved
) -> None:
    assert refused(tmp_path, changed(states["adapter"], change)) == approved.of_row("refused", tmp_path=tmp_path)


@pytest.mark.parametrize(
    "lora",
    [
        {"rank": 10**9},
        {"alpha": float("nan")},
        {"targets": ["absent"]},
        {"rank": 4096},
    ],
)
def test_updates_that_cannot_be_are_refused(
    states: Mapping[str, State], tmp_path: Path, lora: dict[str, Any], approved: Approved
) -> None:
    config = states["adapter"]["config"]
    model = {**config["model"], "lora": {**config["model"]["lora"], **lora}}
    torch.save({**states["adapter"], "config": {**config, "model": model}}, tmp_path / "best.pt")
    with pytest.raises(DataError) as caught:
        torchyard.load(tmp_path / "best.pt", device="cpu")
    assert caught.value.message == approved.of_row("message", tmp_path=tmp_path)


def test_what_a_state_names_is_neither_imported_nor_downloaded(states: Mapping[str, State], tmp_path: Path) -> None:
    named = {
        "auto_map": {"AutoModelForCausalLM": "stranger--code.Model"},
        "_name_or_path": "stranger/model",
        "attn_implementation": "stranger/kernel",
        "_attn_implementation": "stranger/kernel",
        "quantization_config": {"quant_method": "bitsandbytes"},
        "dtype": "os.system",
    }
    model = loaded(tmp_path / "best.pt", changed(states["whole"], {"model_config": named}))
    config: Any = own_config(model.module)
    assert not hasattr(config, "auto_map") and not hasattr(config, "quantization_config")
    assert config._attn_implementation == "sdpa"
    assert {value.dtype for value in model.module.parameters()} == {torch.float32}
    assert model.generate("The yard", max_new_tokens=2) is not None


@pytest.fixture(params=["gpt2", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("gemma2", "qwen3"))])
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


def test_other_types_are_loaded_from_their_state(kind: str, tmp_path: Path) -> None:
    base = tiny_base(tmp_path / "base", kind=kind)
    expected = causal.causal(_transformers(base))(input_ids=torch.arange(9)[None]).logits
    model = loaded(tmp_path / "best.pt", whole(base))
    with torch.no_grad():
        assert torch.allclose(model.module(input_ids=torch.arange(9)[None]).logits, expected, atol=1e-6)
    updated = loaded(tmp_path / "best.pt", adapter(base))
    one, two = updated.predict(["The yard", "A"], max_new_tokens=4)
    assert (one.text, two.text) == tuple(updated.generate(each, max_new_tokens=4) for each in ("The yard", "A"))


def _transformers(base: Path) -> Any:
    from transformers import AutoModelForCausalLM

    kind = json.loads((base / "config.json").read_text())["model_type"]
    attention = "eager" if kind == "gemma2" else "sdpa"
    return AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation=attention).eval()
