"""Exports models for other programs. What was written is read again and compared with the model."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.contract.errors import ExportError
from torchyard.contract.exports import FORMATS, Format
from torchyard.models.exporting import folders, onnxfiles, programs, weights
from torchyard.models.exporting.described import card, metadata
from torchyard.models.exporting.graphs import Graph, Run, compare, reason
from torchyard.models.exporting.made import graph_of
from torchyard.models.exporting.placing import Content, place, refuse_taken
from torchyard.models.model import Model
from torchyard.models.texts import TextClassifier


@dataclass(frozen=True)
class Exported:
    """What was written."""

    path: Path
    to: Format
    difference: float
    """The largest difference between its logits and the model's, on one sample and on three."""
    card: dict[str, Any]
    """The model's card, with the inputs and outputs of the graph."""


def export(model: Model[Any, Any], *, to: Format, path: str | Path, force: bool = False) -> Exported:
    """Writes the model to `path`: a file, or for `hf` a folder, whole or not at all.

    What was written is read again, and compared with the model in single precision. `force`: replaces a file that is
    there, or the folder of an earlier export. Raises ExportError, and OSError.
    """
    if to not in FORMATS:
        raise ExportError(f"{to!r} is no format: choose one of {', '.join(FORMATS)}")
    where = Path(path)
    names = folders.FILES if to == "hf" else None
    refuse_taken(where, names, force=force)
    _require(model, to, where)
    graph = graph_of(model)
    differences: list[float] = []
    place(where, _content(model, graph, to), names=names, force=force, check=_check(graph, to, differences.append))
    return Exported(where, to, max(differences), card(model, graph))


def _require(model: Model[Any, Any], to: Format, path: Path) -> None:
    if to == "hf" and not isinstance(model, TextClassifier):
        raise ExportError(
            f"hf is for models of texts: transformers has no class for a model of {model.recipe}. "
            "Choose onnx, torch-export or safetensors"
        )
    if to == "safetensors" and path.suffix != ".safetensors":
        raise ExportError(f"{path} must end in .safetensors: torchyard.load knows the format by that")
    if to == "onnx":
        onnxfiles.require_packages()


def _content(model: Model[Any, Any], graph: Graph, to: Format) -> Content:
    if to == "safetensors":
        return weights.content(model)
    if to == "hf":
        assert isinstance(model, TextClassifier)
        return folders.content(model)
    return (onnxfiles if to == "onnx" else programs).content(graph, metadata(model, graph))


def _check(graph: Graph, to: Format, tell: Callable[[float], None]) -> Callable[[Path], None]:
    opened = {"torch-export": programs, "onnx": onnxfiles, "safetensors": weights, "hf": folders}[to].opened

    def check(path: Path) -> None:
        try:
            run: Run = opened(path)
        except OSError:
            raise
        except Exception as error:
            raise ExportError(f"what was written cannot be read again: {reason(error)}") from error
        tell(compare(run, graph.trials))

    return check
