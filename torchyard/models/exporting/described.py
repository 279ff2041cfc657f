"""Says of an exported graph what it takes and what it gives, for those who run it without Torchyard."""

import json
import math
from typing import Any

from torchyard.contract.wire.version import own_version
from torchyard.models.exporting.graphs import BATCH, OUTPUT, Graph
from torchyard.models.model import Model
from torchyard.models.pictures import PictureModel
from torchyard.models.segmenter import Segmenter
from torchyard.models.texts import TextClassifier

CARD_KEY = "torchyard"
"""The key of the card in an exported file. The card is JSON."""
TOKENIZER_KEY = "tokenizer.json"


def metadata(model: Model[Any, Any], graph: Graph) -> dict[str, str]:
    """Returns what is written beside a graph: the card, and the tokenizer of a model of texts."""
    texts = {CARD_KEY: json.dumps(card(model, graph), ensure_ascii=False)}
    return {**texts, TOKENIZER_KEY: model.tokenizer.content} if isinstance(model, TextClassifier) else texts


def card(model: Model[Any, Any], graph: Graph) -> dict[str, Any]:
    """Returns the model's card with its inputs and outputs."""
    return {
        "torchyard": own_version(),
        **model.card,
        "metrics": {name: value for name, value in model.metrics.items() if math.isfinite(value)},
        "inputs": _inputs(model, graph),
        "outputs": {OUTPUT: _output(model, graph)},
    }


def _inputs(model: Model[Any, Any], graph: Graph) -> dict[str, Any]:
    example = graph.trials[0].inputs
    found: dict[str, Any] = {}
    for (name, axes), tensor in zip(graph.axes.items(), example, strict=True):
        shape = [axes.get(place, side) for place, side in enumerate(tensor.shape)]
        found[name] = {"type": str(tensor.dtype).removeprefix("torch."), "shape": shape}
    if isinstance(model, PictureModel):
        colours = "grey" if model.form.channels == 1 else "RGB"
        found["pixels"] |= {"range": [0, 1], "colours": colours, "normalization": "in the graph"}
    else:
        found["input_ids"] |= {"tokenizer": TOKENIZER_KEY, "padding": model.metadata["model_config"]["pad_token_id"]}
    return found


def _output(model: Model[Any, Any], graph: Graph) -> dict[str, Any]:
    shape = [BATCH, *graph.trials[0].expected.shape[1:]]
    if isinstance(model, Segmenter) and shape[1] == 1:
        return {
            "shape": shape,
            "probability": "sigmoid",
            "of": model.classes[1],
            "threshold": model.metadata["threshold"],
        }
    return {"shape": shape, "probability": "softmax of dimension 1"}
