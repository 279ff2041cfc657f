"""Use a trained model: load a checkpoint, predict, generate and export. Needs `pip install 'torchyard[models]'`.

Example:
    >>> model = torchyard.load("best.pt", device="cpu")
    >>> model.predict("photo.png").label in model.classes
    True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchyard.models.classifier import Classifier
    from torchyard.models.exporting import Exported, export
    from torchyard.models.generator import Generation, Generator
    from torchyard.models.loading import load
    from torchyard.models.model import Model
    from torchyard.models.segmenter import Segmenter
    from torchyard.models.texts import TextClassifier

__all__ = [
    "Classifier",
    "Exported",
    "Generation",
    "Generator",
    "Model",
    "Segmenter",
    "TextClassifier",
    "export",
    "load",
]

_MODULES = {
    "Classifier": "torchyard.models.classifier",
    "Exported": "torchyard.models.exporting",
    "Generation": "torchyard.models.generator",
    "Generator": "torchyard.models.generator",
    "Model": "torchyard.models.model",
    "Segmenter": "torchyard.models.segmenter",
    "TextClassifier": "torchyard.models.texts",
    "export": "torchyard.models.exporting",
    "load": "torchyard.models.loading",
}


def __getattr__(name: str) -> Any:
    # Imported when it is first used: training needs no predictions, and predictions no export.
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
