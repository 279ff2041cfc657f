"""Torchyard: submit distributed PyTorch training jobs to a service that runs, watches and resumes them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchyard.run import Run, init

__all__ = ["Run", "init"]


def __getattr__(name: str) -> Any:
    # Lazy, so that programs which never train do not pay for it.
    if name in __all__:
        from torchyard import run

        return getattr(run, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
