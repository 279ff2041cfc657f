"""Compiles a model with torch.compile."""

import os
import shutil

import torch
from torch import nn

from torchyard.contract.errors import ConfigError


def compile_in_place(model: nn.Module) -> None:
    """Makes the model compile at its first call. Its parameters keep their names. Raises ConfigError."""
    compiler = os.environ.get("CXX") or next((name for name in ("g++", "clang++") if shutil.which(name)), None)
    if compiler is None or not shutil.which(compiler):
        raise ConfigError(
            "training.compile needs a C++ compiler (g++ or clang++) on the worker: install one, or set it to false"
        )
    # The last window of an epoch has another batch size; one more compilation, for any size, covers all of them.
    torch._dynamo.config.cache_size_limit = max(torch._dynamo.config.cache_size_limit, 32)  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    model.compile()
