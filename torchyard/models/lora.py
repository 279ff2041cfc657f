"""LoRA: low-rank updates beside the linear layers of a base that does not train."""

from collections.abc import Sequence
from difflib import get_close_matches
import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes.causal import LoraConfig
from torchyard.models.causal import is_adapter, tied_names
from torchyard.models.library import configure_transformers

ADAPTER = "default"
_PEFT = "base_model.model."


def inject(module: nn.Module, config: LoraConfig, *, seed: int | None = None) -> list[str]:
    """Puts updates beside the linear layers that `config` names, in float32. Nothing else trains any more.

    A is random, from torch's generator of the CPU or from `seed`, and the same on all devices; B is zero. They have
    values also if the base is on the meta device. Returns the names of the layers. Raises ConfigError.
    """
    configure_transformers()
    from peft import LoraConfig as PeftConfig
    from peft import inject_adapter_in_model

    targets = resolve(module, config.targets)
    wanted = PeftConfig(
        r=config.rank,
        lora_alpha=cast(Any, config.alpha),
        lora_dropout=config.dropout,
        target_modules=targets,
        fan_in_fan_out=_is_transposed(module),
    )
    module.requires_grad_(False)
    inject_adapter_in_model(wanted, module, adapter_name=ADAPTER, low_cpu_mem_usage=True)  # which draws nothing
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        for layer in _updated_layers(module).values():
            _draw(layer)
    return targets


def resolve(module: nn.Module, targets: str | Sequence[str]) -> list[str]:
    """Returns the names of the layers that get updates. Raises ConfigError if a target names none."""
    names = _linear_layers(module)
    if targets == "all-linear":
        return names
    chosen: set[str] = set()
    for target in targets:
        found = [name for name in names if name == target or name.endswith(f".{target}")]
        if not found:
            raise ConfigError(f"model.lora.targets: no linear layer is named {target!r}; {_suggestion(target, names)}")
        chosen.update(found)
    return [name for name in names if name in chosen]


def merged(module: nn.Module) -> dict[str, Tensor]:
    """Returns the weights of the base with the updates added, by the names of the base. Tied weights are in it once."""
    updates = _updates(module)
    tied = tied_names(module)
    state = {name: value for name, value in nn.Module.state_dict(module).items() if not is_adapter(name)}
    whole: dict[str, Tensor] = {}
    for name, value in state.items():
        layer, dot, last = name.rpartition(".")
        own = layer.removesuffix(".base_layer") + dot + last
        if own in tied:
            continue
        update = updates.get(layer.removesuffix(".base_layer")) if last == "weight" else None
        whole[own] = value if update is None else (value.float() + update).to(value.dtype)
    return whole


def as_peft(module: nn.Module, config: LoraConfig, *, base: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Returns the content of `adapter_config.json` and the tensors of `adapter_model.safetensors`, as peft has them."""
    layers = sorted({name.partition(".lora_")[0] for name, _ in module.named_parameters() if is_adapter(name)})
    described = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": config.dropout,
        "target_modules": layers,
        "fan_in_fan_out": _is_transposed(module),
        "bias": "none",
        "inference_mode": True,
    }
    tensors = {
        _PEFT + name.replace(f".{ADAPTER}.", "."): parameter.detach().contiguous()
        for name, parameter in module.named_parameters()
        if is_adapter(name)
    }
    return described, tensors


def _linear_layers(module: nn.Module) -> list[str]:
    """Returns the names of the linear layers but the head."""
    from transformers.pytorch_utils import Conv1D

    head = cast(Any, module).get_output_embeddings()
    return [
        name for name, layer in module.named_modules() if isinstance(layer, nn.Linear | Conv1D) and layer is not head
    ]


def _is_transposed(module: nn.Module) -> bool:
    """Returns whether the layers are those of GPT-2, whose weights are (inputs, outputs)."""
    from transformers.pytorch_utils import Conv1D

    return any(isinstance(layer, Conv1D) for layer in module.modules())


def _suggestion(target: str, names: Sequence[str]) -> str:
    last = list(dict.fromkeys(name.rpartition(".")[2] for name in names))
    near = get_close_matches(target, last, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(last)}"


def _updates(module: nn.Module) -> dict[str, Tensor]:
    """Returns what is added to the weight of each layer, in float32."""
    return {name: layer.get_delta_weight(ADAPTER) for name, layer in _updated_layers(module).items()}


def _updated_layers(module: nn.Module) -> dict[str, Any]:
    """Returns the layers of peft with updates, by their names."""
    from peft.tuners.lora import LoraLayer

    return {name: layer for name, layer in module.named_modules() if isinstance(layer, LoraLayer)}


def _draw(layer: Any) -> None:
    """Gives a layer its first update, as peft does, beside the weight of the base or else on the CPU."""
    device = layer.get_base_layer().weight.device
    for part, fill in ((layer.lora_A, _fill_a), (layer.lora_B, nn.init.zeros_)):
        values = torch.empty(part[ADAPTER].weight.shape, dtype=torch.float32, device="cpu")
        fill(values)
        part[ADAPTER].weight = nn.Parameter(values if device.type == "meta" else values.to(device))


def _fill_a(values: Tensor) -> Tensor:
    return nn.init.kaiming_uniform_(values, a=math.sqrt(5))
