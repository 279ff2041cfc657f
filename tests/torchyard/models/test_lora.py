"""Low-rank updates: which layers get them, what they compute, and how they are merged and exchanged with peft."""

from collections.abc import Callable
import json
from pathlib import Path
from typing import Any, cast

import pytest
from safetensors.torch import save_file
import torch
from torch import Tensor, nn

from tests.approved import Approved
from tests.trainer.bases import tiny_base
from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes.causal import LoraConfig
from torchyard.models import lora
from torchyard.models.base import Base, load_model, open_base
from torchyard.models.causal import config_of, rebuild

IDS = torch.arange(40).view(2, 20) + 5
LLAMA = [
    *(f"self_attn.{name}_proj" for name in "qkvo"),
    *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Base]:
    """Makes a base of a type once."""
    made: dict[str, Base] = {}

    def base(kind: str) -> Base:
        if kind not in made:
            made[kind] = open_base(tiny_base(tmp_path_factory.mktemp(kind), kind=kind, tie_word_embeddings=True))
        return made[kind]

    return base


def trained(base: Base, config: LoraConfig) -> nn.Module:
    """Returns a model whose updates are not zero, as after training."""
    module = load_model(base)
    lora.inject(module, config, seed=3)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if ".lora_B." in name:
                parameter.normal_(std=0.05, generator=torch.Generator().manual_seed(len(name)))
    return module.eval()


def logits(module: nn.Module) -> Tensor:
    with torch.no_grad():
        return module(input_ids=IDS).logits


def test_all_linear_is_every_linear_layer_but_the_head(opened: Callable[[str], Base]) -> None:
    expected = [f"model.layers.{layer}.{name}" for layer in range(2) for name in LLAMA]
    assert lora.inject(load_model(opened("llama")), LoraConfig()) == expected
    convolutions = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]
    of_gpt2 = lora.inject(load_model(opened("gpt2")), LoraConfig())
    assert of_gpt2 == [f"transformer.h.{layer}.{name}" for layer in range(2) for name in convolutions]


@pytest.mark.parametrize("kind", ["llama", "gpt2", "phi3"])
def test_all_linear_is_what_peft_says(kind: str, opened: Callable[[str], Base]) -> None:
    from peft import LoraConfig as PeftConfig
    from peft import inject_adapter_in_model
    from peft.tuners.lora import LoraLayer

    theirs = inject_adapter_in_model(
        PeftConfig(target_modules="all-linear", fan_in_fan_out=kind == "gpt2"), load_model(opened(kind))
    )
    names = [name for name, layer in theirs.named_modules() if isinstance(layer, LoraLayer)]
    assert lora.resolve(load_model(opened(kind)), "all-linear") == names


def test_only_the_updates_train_in_float32_whatever_the_base_is(opened: Callable[[str], Base]) -> None:
    module = load_model(opened("llama"), dtype=torch.bfloat16)
    before = logits(module)
    lora.inject(module, LoraConfig(rank=2, targets=["q_proj", "v_proj"]))
    assert torch.equal(logits(module), before)  # B is zero
    training = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    assert list(training) == [
        f"model.layers.{layer}.self_attn.{name}_proj.lora_{part}.default.weight"
        for layer in range(2)
        for name in "qv"
        for part in "AB"
    ]
    assert {parameter.dtype for parameter in training.values()} == {torch.float32}
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float32, torch.bfloat16}
    assert module.state_dict().keys() == training.keys()


def test_the_updates_are_drawn_from_torchs_generator_or_from_a_seed(opened: Callable[[str], Base]) -> None:
    def drawn(**seed: int) -> Tensor:
        module = load_model(opened("llama"))
        lora.inject(module, LoraConfig(rank=2), **seed)
        return torch.cat([value.flatten() for value in module.state_dict().values()])

    torch.manual_seed(1)
    first = drawn()
    torch.manual_seed(1)
    state = torch.get_rng_state()
    by_seed = drawn(seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(drawn(), first)
    assert torch.equal(drawn(seed=5), by_seed)
    assert not torch.equal(by_seed, first)


def test_the_updates_of_a_base_without_weights_have_the_values_that_others_have(
    opened: Callable[[str], Base],
) -> None:
    described = config_of(load_model(opened("llama")))
    with torch.device("meta"):
        empty = rebuild(described)
    lora.inject(empty, LoraConfig(rank=2), seed=5)
    whole = load_model(opened("llama"))
    lora.inject(whole, LoraConfig(rank=2), seed=5)
    expected = whole.state_dict()
    assert {name: parameter.is_meta for name, parameter in empty.named_parameters()} == {
        name: name not in expected for name, _ in whole.named_parameters()
    }
    assert all(torch.equal(value, expected[name]) for name, value in empty.state_dict().items())


@pytest.mark.parametrize(
    "targets",
    [
        ["q_pro"],
        ["q_proj", "zzz"],
        ["lm_head"],
        ["embed_tokens"],
        ["proj"],
    ],
)
def test_a_target_that_names_no_layer_is_refused_with_what_there_is(
    targets: list[str], opened: Callable[[str], Base], approved: Approved
) -> None:
    module = load_model(opened("llama"))
    with pytest.raises(ConfigError) as raised:
        lora.inject(module, LoraConfig(targets=targets))
    assert str(raised.value) == approved.of_row("message")
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_dropout_is_active_in_training_alone(opened: Callable[[str], Base]) -> None:
    module = trained(opened("llama"), LoraConfig(rank=2, dropout=0.5))
    assert torch.equal(logits(module), logits(module))
    assert not torch.equal(logits(module.train()), logits(module))
    without = trained(opened("llama"), LoraConfig(rank=2))
    assert torch.equal(logits(without.train()), logits(without.eval()))


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_merged_base_computes_what_the_base_and_its_updates_do(kind: str, opened: Callable[[str], Base]) -> None:
    module = trained(opened(kind), LoraConfig(rank=4))
    plain = load_model(opened(kind)).eval()
    before = logits(plain)
    whole = lora.merged(module)
    assert whole.keys() == plain.state_dict().keys()
    plain.load_state_dict(whole)
    torch.testing.assert_close(logits(plain), logits(module), atol=4e-7, rtol=0)
    assert float((logits(plain) - before).abs().max()) > 1e-3


def test_merging_leaves_the_model_as_it_is_and_keeps_the_number_format(opened: Callable[[str], Base]) -> None:
    module = load_model(opened("llama"), dtype=torch.bfloat16)
    lora.inject(module, LoraConfig(rank=2), seed=1)
    before = {name: parameter.clone() for name, parameter in module.named_parameters()}
    assert {value.dtype for value in lora.merged(module).values()} == {torch.bfloat16}
    assert all(torch.equal(parameter, before[name]) for name, parameter in module.named_parameters())


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # which peft asks for
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_peft_loads_what_is_written_for_it(kind: str, opened: Callable[[str], Base], tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base, config = opened(kind), LoraConfig(rank=4, alpha=12, targets="all-linear")
    module = trained(base, config)
    described, tensors = lora.as_peft(module, config, base="its-name")
    (tmp_path / "adapter_config.json").write_text(json.dumps(described))
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    theirs: Any = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base.folder), tmp_path).eval()
    assert torch.equal(logits(theirs), logits(module))


def test_an_adapter_that_does_not_fit_is_refused(opened: Callable[[str], Base]) -> None:
    module = trained(opened("llama"), LoraConfig(rank=2))
    state = dict(module.state_dict())
    last = list(state)[-1]
    with pytest.raises(RuntimeError, match=f"Missing key: {last}"):
        module.load_state_dict({name: value for name, value in state.items() if name != last})
    with pytest.raises(RuntimeError, match=r"Unexpected key: model\.embed_tokens\.weight"):
        module.load_state_dict({**state, "model.embed_tokens.weight": torch.zeros(1)})
    with pytest.raises(RuntimeError, match="size mismatch"):
        module.load_state_dict({**state, last: torch.zeros(3, 3)})


def test_a_tied_head_is_not_changed_by_updates(opened: Callable[[str], Base]) -> None:
    module = trained(opened("llama"), LoraConfig(rank=2))
    model = cast(Any, module)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert torch.equal(lora.merged(module)["model.embed_tokens.weight"], model.lm_head.weight)
