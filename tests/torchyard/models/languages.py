"""Checkpoints of language models, on small bases, as the recipe `causal-lm` writes them."""

from pathlib import Path
from typing import Any

import torch

from torchyard.contract.recipes import REGISTRY, CausalLm
from torchyard.models import causal, lora
from torchyard.models.base import load_model, open_base
from torchyard.models.language import tokenizer_state
from torchyard.models.prompts import Form

State = dict[str, Any]
CONFIG: dict[str, Any] = {"data": {"source": "file:///absent"}, "training": {"precision": "fp32"}}


def config_of(base: Path, **model: Any) -> CausalLm:
    raw = {**CONFIG, "model": {"weights": base.as_uri(), **model}}
    config = REGISTRY["causal-lm"].config.model_validate(raw)
    assert isinstance(config, CausalLm)
    return config


def adapter(base: Path, *, form: Form = "text", size: float = 0.3, **config: Any) -> State:
    """Returns the state of an adapter of a base, with random updates."""
    chosen = config_of(base, lora={"rank": 4, "alpha": 8, **config})
    opened = open_base(base)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        module = load_model(opened)
        targets = lora.inject(module, chosen.model.lora)
        for parameter in module.parameters():
            if parameter.requires_grad:
                torch.nn.init.normal_(parameter, std=size)
    return {
        **_recipe(chosen, form),
        "model": module.state_dict(),
        "model_config": causal.config_of(module),
        "adapter": {
            **chosen.model.lora.model_dump(),
            "targets": targets,
            "base": {"digest": opened.digest, "name": chosen.model.weights, "model_type": opened.config.model_type},
        },
    }


def whole(base: Path, *, form: Form = "text") -> State:
    """Returns the state of a model whose weights all trained."""
    opened = open_base(base)
    module = load_model(opened)
    return {
        **_recipe(config_of(base, method="full"), form),
        "model": module.state_dict(),
        "model_config": causal.config_of(module),
        "tokenizer": tokenizer_state(opened.tokenizer),
    }


def _recipe(config: CausalLm, form: Form) -> State:
    metrics = {"val/loss": 1.5, "val/perplexity": 4.48}
    recipe: State = {"format": 1, "recipe": "causal-lm", "config": config.model_dump(mode="json")}
    return {**recipe, "form": form, "metrics": metrics, "epoch": 1, "step": 9}
