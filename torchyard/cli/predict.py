"""The command `predict`: what the model of a checkpoint says of pictures or texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import json
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchyard.cli import output
from torchyard.cli.arguments import Json
from torchyard.cli.completion import job_names
from torchyard.cli.loading import loaded
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.models.model import Model
    from torchyard.models.predictions import MaskPrediction

_STDIN = "-"


def predict(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A checkpoint's state.pt or an exported model.safetensors; or JOB or JOB/REF of a recipe, such as "
            "digits/best, or model:NAME, which are downloaded once.",
            autocompletion=job_names,
        ),
    ],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE…]",
            help="Pictures or folders of pictures; for a model of texts files with a text a line, - reads stdin.",
            show_default=False,
        ),
    ] = None,
    *,
    text: Annotated[list[str] | None, typer.Option(help="A text; may be given several times.")] = None,
    to: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write masks and overlays here, as PNG.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "auto",
    batch_size: Annotated[int, typer.Option(min=1, help="Pictures or texts that are computed together.")] = 32,
    as_json: Json = False,
) -> None:
    """Predict with a recipe's checkpoint: classes of pictures or texts, masks of pictures.

    Needs `pip install 'torchyard[models]'`, and no server if MODEL is a file. --json prints a JSON document a line.
    """
    named, texts = files or [], text or []
    if not (named or texts):
        raise typer.BadParameter("name the files to predict, or give --text")
    found = loaded(model, device=device, command="predict")
    sources = _sources(found, named, texts, to)
    rows = _rows(found, sources, to, batch_size=batch_size)
    if as_json:
        for row in rows:
            terminal.write(json.dumps(row))
        return
    for line in _table(list(rows)):
        terminal.write(line)


def _sources(model: Model[Any, Any], files: Sequence[str], texts: Sequence[str], to: Path | None) -> list[Any]:
    """Returns the single pictures or texts. Raises DataError, and BadParameter for what the model does not take."""
    if to is not None and model.recipe != "segmentation":
        raise typer.BadParameter(f"--output is for masks, and this is a model of {model.recipe}")
    if model.recipe == "text-classification":
        return [*texts, *(text for file in files for text in _texts(model, file))]
    if texts:
        raise typer.BadParameter(f"--text is for models of texts, and this is one of {model.recipe}")
    if _STDIN in files:
        raise typer.BadParameter("- is for texts: name the files of the pictures")
    return model.listed(list(files))[0]


def _texts(model: Model[Any, Any], file: str) -> list[str]:
    if file != _STDIN:
        return model.listed(Path(file))[0]
    from torchyard.models.textlines import decoded, lines_of

    return lines_of(decoded(sys.stdin.buffer.read(), "standard input"), "standard input")


def _rows(
    model: Model[Any, Any], sources: Sequence[Any], to: Path | None, *, batch_size: int
) -> Iterator[dict[str, Any]]:
    """Yields each prediction for JSON, when its batch is computed and its files are written."""
    if to is not None:
        to.mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    for prediction in model.predictions(sources, batch_size=batch_size):
        written = {} if to is None else _written(prediction, to, taken)
        yield {**prediction.as_dict(), **written}


def _written(prediction: MaskPrediction, to: Path, taken: set[str]) -> dict[str, str]:
    """Writes the mask and the overlay. Returns their paths. `taken` has the names of the files before."""
    stem = name = Path(prediction.source or "picture").stem
    number = 1
    while name in taken:
        number += 1
        name = f"{stem}-{number}"
    taken.add(name)
    paths = {kind: to / f"{name}.{kind}.png" for kind in ("mask", "overlay")}
    prediction.save_mask(paths["mask"])
    prediction.save_overlay(paths["overlay"])
    return {kind: str(path) for kind, path in paths.items()}


def _table(rows: Sequence[dict[str, Any]]) -> list[str]:
    if "share" in rows[0]:
        headers = (*rows[0]["share"], *(("MASK",) if "mask" in rows[0] else ()), "PICTURE")
        cells = [(*(f"{share:.1%}" for share in row["share"].values()), *_file_of(row), row["source"]) for row in rows]
    else:
        headers = ("LABEL", "PROBABILITY", "SOURCE")
        cells = [(row["label"], f"{row['probability']:.4f}", row["source"]) for row in rows]
    return output.table([terminal.plain(header) for header in headers], cells)


def _file_of(row: dict[str, Any]) -> tuple[str, ...]:
    return (row["mask"],) if "mask" in row else ()
