"""Exports models for other programs. Each written file is read again and compared with the model."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.contract.errors import ExportError
from torchyard.contract.models.names import FORMATS, Format
from torchyard.models.exporting import folders, languages, onnxfiles, programs, weights
from torchyard.models.exporting.described import card, metadata
from torchyard.models.exporting.graphs import Graph, Written, compare, reason
from torchyard.models.exporting.made import graph_of
from torchyard.models.exporting.placing import Content, place, refuse_taken
from torchyard.models.generator import Generator
from torchyard.models.model import Model
from torchyard.models.texts import TextClassifier


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    Attributes:
        path: The file or folder.
        to: The format.
        difference: The largest absolute difference between the logits of the file and of the model.
        card: The model card, with the inputs and outputs of the graph.
    """

    path: Path
    to: Format
    difference: float
    card: dict[str, Any]


def export(
    model: Model[Any, Any] | Generator, *, to: Format, path: str | Path, force: bool = False, adapter: bool = False
) -> Exported:
    """Exports a model. It writes the file or folder whole, or not at all, and compares its logits with the model's.

    Args:
        model: A model that `load` returned.
        to: `onnx`, `torch-export`, `safetensors`, or `hf` (a folder for transformers).
        path: The file, or for `hf` the folder.
        force: Replace an existing file, or the folder of an earlier export.
        adapter: Write only the adapter of a language model, for peft; False: merge it into the base model.

    Raises:
        ExportError: The model has no such format, a package is missing, or the logits differ too much.
        OSError: The file cannot be written.

    Example:
        >>> model = torchyard.load("best.pt", device="cpu")
        >>> exported = torchyard.models.export(model, to="safetensors", path="best.safetensors")
        >>> exported.difference
        0.0
    """
    if to not in FORMATS:
        raise ExportError(f"{to!r} is not a format: choose one of {', '.join(FORMATS)}")
    where = Path(path)
    names = _names(model, to, adapter=adapter)
    refuse_taken(where, names, force=force)
    _require(model, to, where, adapter=adapter)
    made = languages.written(model, to, adapter=adapter) if isinstance(model, Generator) else _written(model, to)
    differences: list[float] = []
    place(where, made.content, names=names, force=force, check=_check(made, differences.append))
    return Exported(where, to, max(differences), made.card)


def _names(model: Model[Any, Any] | Generator, to: Format, *, adapter: bool) -> frozenset[str] | None:
    if isinstance(model, Generator):
        return languages.names(to, adapter=adapter)
    return folders.FILES if to == "hf" else None


def _require(model: Model[Any, Any] | Generator, to: Format, path: Path, *, adapter: bool) -> None:
    if isinstance(model, Generator):
        languages.refuse(model, to, adapter=adapter)
    elif adapter:
        raise ExportError(f"a model of {model.recipe} has no adapter")
    elif to == "hf" and not isinstance(model, TextClassifier):
        raise ExportError(
            f"hf is for models of texts: transformers has no class for a model of {model.recipe}. "
            "Choose onnx, torch-export or safetensors"
        )
    if to == "safetensors" and path.suffix != ".safetensors":
        raise ExportError(f"{path} must end in .safetensors: torchyard.load knows the format by that")
    if to == "onnx":
        onnxfiles.require_packages()


def _written(model: Model[Any, Any], to: Format) -> Written:
    graph = graph_of(model)
    opened = {"torch-export": programs, "onnx": onnxfiles, "safetensors": weights, "hf": folders}[to].opened
    return Written(_content(model, graph, to), opened, graph.trials, card(model, graph))


def _content(model: Model[Any, Any], graph: Graph, to: Format) -> Content:
    if to == "safetensors":
        return weights.content(model)
    if to == "hf":
        assert isinstance(model, TextClassifier)
        return folders.content(model)
    return (onnxfiles if to == "onnx" else programs).content(graph, metadata(model, graph))


def _check(made: Written, tell: Callable[[float], None]) -> Callable[[Path], None]:
    def check(path: Path) -> None:
        try:
            run = made.opened(path)
        except (OSError, ExportError):
            raise
        except Exception as error:
            raise ExportError(f"what was written cannot be read again: {reason(error)}") from error
        tell(compare(run, made.trials))

    return check
