"""FSDP of a language model from a base of which no rank holds the whole: all weights train, or an adapter alone."""

from pathlib import Path
from typing import Any, cast

import pytest
from safetensors.torch import load_file
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import SGD

from tests import forks
from tests.trainer.bases import tiny_base
from tests.trainer.parallel.test_filling import FSDP, read, slices
from tests.trainer.parallel.toy import MINUTE, config, trained
from tests.trainer.ranks import on_ranks, results
from torchyard.contract.recipes import EmaConfig
from torchyard.models.library import configure_transformers
from trainer.activations import recompute_layers
from trainer.averaging import ExponentialAverage
from trainer.parallel import make_strategy
from trainer.task import Unfilled
from trainer.train import gradient_norm
from trainer.weights.home import without_weights
from trainer.world import World, joined

forks.preload("tests.trainer.transformers_loaded")

ROWS = 6
"""The rows of a step, in micro-batches of one row, divided among the ranks."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_base(tmp_path_factory.mktemp("base"), num_key_value_heads=2, tie_word_embeddings=True)


def built(base: Path, dtype: torch.dtype) -> Any:
    configure_transformers()
    from transformers import AutoConfig, AutoModelForCausalLM

    return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(base), dtype=dtype)


def with_adapter(model: Any) -> Any:
    """Puts an adapter on a model, which has the same values wherever the model is."""
    from peft import LoraConfig, inject_adapter_in_model

    inject_adapter_in_model(LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"), model)
    generator = torch.Generator().manual_seed(3)
    for module in model.modules():
        for name in ("lora_A", "lora_B"):
            if isinstance(layers := getattr(module, name, None), nn.ModuleDict):
                layer = cast(nn.Linear, layers["default"])
                layer.weight = nn.Parameter(torch.randn(layer.weight.shape, generator=generator) / 8)
    return model


def row(step: int, index: int) -> Tensor:
    generator = torch.Generator().manual_seed(step * 100 + index)
    return torch.randint(3, 300, (1, 24), generator=generator)


def begin(base: Path, method: str, world: World | None, *, half: bool, recompute: bool = False) -> tuple[Any, Any, int]:
    """Returns a model, its strategy, and how many bytes of the base this rank has read."""
    dtype = torch.bfloat16 if half and method == "lora" else torch.float32
    tensors = load_file(base / "model.safetensors")
    if world is None:
        model = built(base, dtype)
        model.load_state_dict(tensors, strict=False)
    else:
        with without_weights():
            model = built(base, dtype)
    if method == "lora":
        with_adapter(model)
    own = {name: name.replace(".base_layer.", ".") for name, item in model.named_parameters() if item.is_meta}
    parts = slices({name: tensors[there] for name, there in own.items()})
    if recompute:
        recompute_layers(model)
    model.train()
    if world is None:
        return model, None, 0
    strategy = make_strategy(
        model, config(**FSDP), world, compute=torch.bfloat16 if half else None, unfilled=Unfilled({**parts})
    )
    return model, strategy, read(parts)


def descend(model: Any, strategy: Any, *, rank: int, size: int, half: bool, steps: int = 2) -> dict[str, Any]:
    """Takes steps on the mean over ROWS rows, clipped, with an average of weights."""
    optimizer = SGD(trained(model), lr=0.5, momentum=0.9)
    average = ExponentialAverage(model, EmaConfig(decay=0.5, ramp=0))
    norms: list[float] = []
    own = range(rank, ROWS, size)
    for step in range(steps):
        for index in own:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
                if strategy is not None:
                    strategy.micro_batch(last=index == own[-1])
                ids = row(step, index)
                loss = model(input_ids=ids, labels=ids, use_cache=False).loss
            (loss.float() / len(own)).backward()
        if strategy is None:
            norm = nn.utils.clip_grad_norm_(trained(model), 0.5)
        else:
            norm = gradient_norm(trained(model))
            nn.utils.clip_grads_with_norm_(trained(model), 0.5, norm)
        norms.append(float(norm))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        average.update(step + 1, skipped=torch.zeros(()))
    with average.applied():
        averaged = {name: whole(item) for name, item in model.named_parameters() if item.requires_grad}
    kept = [local(value).numel() for state in optimizer.state.values() for value in state.values() if value.ndim]
    return {
        "norms": norms,
        "weights": {name: whole(item) for name, item in model.named_parameters()},
        "buffers": {name: item.clone() for name, item in model.named_buffers()},
        "averaged": averaged,
        "moments": sum(kept),
    }


def whole(tensor: Tensor) -> Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def train(base: Path, method: str, half: bool, recompute: bool) -> dict[str, Any]:
    with joined(MINUTE) as world:
        model, strategy, bytes_read = begin(base, method, world, half=half, recompute=recompute)
        assert model.lm_head.weight is model.model.embed_tokens.weight
        found = descend(model, strategy, rank=world.rank, size=world.size, half=half)
        prompt = row(9, 0)[:, :6]
        model.eval()
        said = model.generate(prompt, max_new_tokens=3, do_sample=False)
        return {**found, "read": bytes_read, "said": said}


def train_alone(base: Path, method: str, *, half: bool) -> dict[str, Any]:
    model, _, _ = begin(base, method, None, half=half)
    found = descend(model, None, rank=0, size=1, half=half)
    model.eval()
    return {**found, "said": model.generate(row(9, 0)[:, :6], max_new_tokens=3, do_sample=False)}


CASES = [
    pytest.param(2, "lora", True, True, marks=pytest.mark.thorough),
    (2, "full", False, False),
    pytest.param(3, "full", False, False, marks=pytest.mark.thorough),
    pytest.param(1, "lora", False, False, marks=pytest.mark.thorough),
    pytest.param(1, "full", False, True, marks=pytest.mark.thorough),
    pytest.param(3, "lora", False, False, marks=pytest.mark.thorough),
    pytest.param(2, "full", True, False, marks=pytest.mark.thorough),
]


@pytest.mark.parametrize(("size", "method", "half", "recompute"), CASES)
def test_ranks_that_read_parts_of_a_base_train_as_one_process(
    base: Path, size: int, method: str, half: bool, recompute: bool
) -> None:
    size_of_base = sum(item.nbytes for item in load_file(base / "model.safetensors").values())
    expected = train_alone(base, method, half=half)
    outcomes = results(on_ranks(size, train, base, method, half, recompute))
    within = 5e-3 if half else 1e-6
    for found in outcomes:
        for key in ("weights", "buffers", "averaged"):
            assert found[key].keys() == expected[key].keys()
            for name, tensor in found[key].items():
                assert torch.allclose(tensor.float(), expected[key][name].float(), rtol=0, atol=within), (key, name)
        assert found["norms"] == pytest.approx(expected["norms"], rel=0.05 if half else 1e-4)
        assert half or torch.equal(found["said"], expected["said"])
        assert found["moments"] <= expected["moments"] // size + 2000
        assert size_of_base // size * 0.9 <= found["read"] <= size_of_base // size * 1.1
    assert sum(found["read"] for found in outcomes) == size_of_base
