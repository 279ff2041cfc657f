"""Submit distributed PyTorch training jobs to a Torchyard service, and report from inside them.

`Client` and `AsyncClient` submit jobs, follow them and download their files. `init` returns the run context of a
training program. `load` loads the model of a checkpoint.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchyard.client import AsyncClient, AsyncJob, Client, Job
    from torchyard.contract.errors import NotFound, TorchyardError
    from torchyard.models.loading import load
    from torchyard.run import Run, init

    __version__: str

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "Client",
    "Job",
    "NotFound",
    "Run",
    "TorchyardError",
    "__version__",
    "init",
    "load",
]

_MODULES = {
    "AsyncClient": "torchyard.client",
    "AsyncJob": "torchyard.client",
    "Client": "torchyard.client",
    "Job": "torchyard.client",
    "NotFound": "torchyard.contract.errors",
    "TorchyardError": "torchyard.contract.errors",
    "Run": "torchyard.run",
    "init": "torchyard.run",
    "load": "torchyard.models.loading",
}


def __getattr__(name: str) -> Any:
    # Imported when it is first used: a training script needs no client, and a client no training.
    if name in _MODULES:
        try:
            return getattr(import_module(_MODULES[name]), name)
        except ModuleNotFoundError as error:
            if name != "load" or (error.name or "").startswith("torchyard"):
                raise
            raise ModuleNotFoundError(
                f"torchyard.load needs {error.name}: pip install 'torchyard[models]'", name=error.name
            ) from error
    if name == "__version__":
        return import_module("torchyard.contract.wire.version").own_version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
