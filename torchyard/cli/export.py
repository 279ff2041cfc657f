"""The command that exports a checkpoint for other programs."""

from __future__ import annotations

from pathlib import Path
import re
from typing import Annotated

import typer

from torchyard.cli.arguments import Json
from torchyard.cli.completion import job_names
from torchyard.cli.loading import Base, loaded
from torchyard.cli.output import show
from torchyard.contract.models.names import ENDINGS, Format
from torchyard.host import terminal


def export(
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT",
            help="A state.pt or exported model.safetensors, JOB, JOB/REF, SWEEP/best or model:NAME@VERSION.",
            autocompletion=job_names,
        ),
    ],
    *,
    to: Annotated[
        Format,
        typer.Option(
            help="torch-export (PyTorch), onnx (ONNX Runtime), safetensors (`torchyard`), or hf "
            "(transformers; texts and language models)."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file or folder to write."),
    ] = None,
    base: Base = None,
    adapter: Annotated[
        bool,
        typer.Option(
            "--adapter",
            help="With --to hf: write only the adapter, for peft. Default: merge it into the base model.",
            rich_help_panel="Language models",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file or folder.")] = False,
    as_json: Json = False,
) -> None:
    """Export a checkpoint's model to another format.

    Compares the exported model's outputs with the original, and prints the path. The model card in it describes
    inputs and outputs.
    """
    model = loaded(checkpoint, device="cpu", base=base, command="export")
    from torchyard.models import export as write

    path = _path(_name(checkpoint), to, output, adapter=adapter)
    done = write(model, to=to, path=path, force=force, adapter=adapter)
    whole = {"path": str(path), "to": to, "difference": done.difference, "card": done.card}
    show(whole, [str(path)], as_json=as_json)
    terminal.note(f"Checked: its logits differ from the model's by at most {done.difference:.2g}.")


def _name(checkpoint: str) -> str:
    """Returns what the name of the export begins with: `digits-best` of `digits/best`."""
    if Path(checkpoint).is_file():
        return Path(checkpoint).stem
    return re.sub(r"\W+", "-", checkpoint.removeprefix("model:"))


def _path(name: str, to: Format, output: Path | None, *, adapter: bool) -> Path:
    """Returns the path to write. A folder for the file is one that exists; `hf` writes a folder itself."""
    if output is None:
        return Path(f"{name}{'-adapter' if adapter else ENDINGS[to]}")
    return output / f"{name}{ENDINGS[to]}" if to != "hf" and output.is_dir() else output
