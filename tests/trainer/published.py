"""Published weights that lie in a cache, with the digest of their content in the name."""

from collections.abc import Mapping
import hashlib
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor


def content_of(tensors: Mapping[str, Tensor]) -> bytes:
    buffer = io.BytesIO()
    torch.save(dict(tensors), buffer)
    return buffer.getvalue()


def name_of(content: bytes) -> str:
    return f"tiny-{hashlib.sha256(content).hexdigest()[:8]}.pth"


def cache(home: Path, content: bytes) -> Path:
    """Writes a file into the cache of a $TORCH_HOME."""
    file = home / "hub" / "checkpoints" / name_of(content)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def cache_as(monkeypatch: pytest.MonkeyPatch, home: Path, weights: Any, tensors: Mapping[str, Tensor]) -> None:
    """Makes `tensors` the content of torchvision's `weights`, and writes them into the cache of a $TORCH_HOME."""
    file = cache(home, content_of(tensors))
    monkeypatch.setattr(weights.value, "url", f"https://download.pytorch.org/models/{file.name}")
