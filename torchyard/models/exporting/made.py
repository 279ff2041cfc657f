"""Makes the graph of a loaded model."""

import copy
from typing import Any

import torch
from torch import nn

from torchyard.contract.errors import ExportError
from torchyard.contract.recipes import Normalization
from torchyard.models.exporting.graphs import BATCH, LENGTH, Graph, Pictures, Texts, Trial
from torchyard.models.model import Model
from torchyard.models.normalization import Normalizer
from torchyard.models.pictures import PictureModel
from torchyard.models.texts import TextClassifier

CPU = torch.device("cpu")
COUNTS = (1, 3)
"""How many samples the trials have."""
TEXTS = (["a"], ["two words", "ünïcode 😀, and <s> is no token here </s>", "the longest text of all " * 200])
SEED = 7


def graph_of(model: Model[Any, Any]) -> Graph:
    """Returns the graph of a model in single precision. Raises ExportError."""
    module = copy.deepcopy(model.module).to(device=CPU, dtype=torch.float32).eval()
    if isinstance(model, TextClassifier):
        return _of_texts(model, module)
    if isinstance(model, PictureModel):
        return _of_pictures(model, module.to(memory_format=torch.contiguous_format))
    raise ExportError(f"a model of {model.recipe} cannot be exported")


def _of_pictures(model: PictureModel[Any], module: nn.Module) -> Graph:
    form = model.form
    values = Normalization.model_validate(model.preprocessing["normalization"])
    graph = Pictures(module, Normalizer(values, channels=model.channels, device=CPU))
    random = torch.Generator().manual_seed(SEED)
    trials: list[Trial] = []
    for count in COUNTS:
        pixels = torch.rand(count, form.channels, form.height, form.width, generator=random)
        prepared = model.prepare(list(pixels)).to(CPU).contiguous()
        with torch.no_grad():
            trials.append(Trial(list(pixels), (pixels,), module(prepared)))
    return Graph(graph.eval(), {"pixels": {0: BATCH}}, trials)


def _of_texts(model: TextClassifier, module: nn.Module) -> Graph:
    trials: list[Trial] = []
    for texts in TEXTS:
        prepared = {name: tensor.to(CPU) for name, tensor in model.prepare(texts).items()}
        inputs = (prepared["input_ids"], prepared["attention_mask"].long())
        with torch.no_grad():
            trials.append(Trial(texts, inputs, module(prepared)))
    both = {0: BATCH, 1: LENGTH}
    axes = {"input_ids": both, "attention_mask": both}
    return Graph(Texts(module).eval(), axes, trials, longest=model.preprocessing["max_length"])
