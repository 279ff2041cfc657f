"""Torchyard: submit distributed PyTorch training jobs to a service that runs, watches and resumes them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchyard.client import AsyncClient, Client
    from torchyard.run import Run, init

__all__ = ["AsyncClient", "Client", "Run", "init"]

_MODULES = {
    "AsyncClient": "torchyard.client",
    "Client": "torchyard.client",
    "Run": "torchyard.run",
    "init": "torchyard.run",
}


def __getattr__(name: str) -> Any:
    # Imported when it is first used: a training script needs no client, and a client no training.
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
