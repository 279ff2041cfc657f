"""The format `torch-export`: a program that torch alone runs, in Python, and compiled by AOTInductor without it."""

from collections.abc import Mapping
import io
from pathlib import Path

import torch
from torch import Tensor

from torchyard.models.exporting.graphs import Graph, Run, Trial, quiet


def content(graph: Graph, metadata: Mapping[str, str]) -> bytes:
    """Returns a file with the graph, and `metadata` as extra files. Raises ExportError."""
    file = io.BytesIO()
    with quiet():
        torch.export.save(graph.traced(), file, extra_files=dict(metadata))
    return file.getvalue()


def opened(path: Path) -> Run:
    """Returns the program in the file as a function."""
    with quiet(), path.open("rb") as file:
        module = torch.export.load(file).module()

    def run(trial: Trial) -> Tensor:
        return module(*trial.inputs)

    return run
