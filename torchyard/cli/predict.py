"""The command `predict`: what the model of a checkpoint says of pictures, texts or prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import json
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from torchyard.cli import output
from torchyard.cli.arguments import Json
from torchyard.cli.completion import job_names
from torchyard.cli.generating import RECIPE, Asked, generate
from torchyard.cli.loading import Base, loaded
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.models.generator import Generator
    from torchyard.models.model import Model
    from torchyard.models.predictions import MaskPrediction

BATCH_SIZE = 32
_STDIN = "-"
_LANGUAGE: dict[str, Any] = {"rich_help_panel": "Language models", "show_default": False}


def predict(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A state.pt or exported model.safetensors, or JOB, JOB/REF, SWEEP/best or "
            "model:NAME@VERSION (downloaded once).",
            autocompletion=job_names,
        ),
    ],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE…]",
            help="Pictures or folders of them; for text models, files with one text or prompt per line; - reads stdin.",
            show_default=False,
        ),
    ] = None,
    *,
    text: Annotated[list[str] | None, typer.Option(help="A text to classify. Repeatable.")] = None,
    to: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Write masks and overlays to this folder, as PNG."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "auto",
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Inputs per batch. Default: 32; of prompts 8.", show_default=False),
    ] = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option(help="A prompt for a language model. Repeatable.", **_LANGUAGE),
    ] = None,
    system: Annotated[str | None, typer.Option(help="A system prompt; needs a chat template.", **_LANGUAGE)] = None,
    base: Base = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Generate at most N tokens per prompt. Default: 128, or as many as fit.",
            **_LANGUAGE,
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(min=0, metavar="T", help="The sampling temperature. Default: 0 (greedy).", **_LANGUAGE),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            metavar="P", help="Nucleus sampling: the probability mass to sample from. Default: 1.", **_LANGUAGE
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The random seed, for repeatable sampling.", **_LANGUAGE)
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict with a recipe's checkpoint.

    Predicts classes of pictures or texts, masks of pictures, or completions of prompts. Needs `pip install
    'torchyard[models]'`. A file needs no server. --json prints one JSON document per line.
    """
    named, texts, prompts = files or [], text or [], prompt or []
    if not (named or texts or prompts):
        raise typer.BadParameter("give files to predict, or --text or --prompt")
    asked = Asked(
        {
            "--prompt": prompt,
            "--system": system,
            "--max-tokens": max_tokens,
            "--temperature": temperature,
            "--top-p": top_p,
            "--seed": seed,
        }
    )
    found = loaded(model, device=device, base=base, command="predict")
    if found.recipe == RECIPE:
        language = cast("Generator", found)
        given = [*prompts, *_prompts(named, texts, to)]
        return generate(language, given, asked, batch_size=batch_size, as_json=as_json)
    asked.refuse_for(found.recipe)
    _predict(cast("Model[Any, Any]", found), named, texts, to, batch_size=batch_size or BATCH_SIZE, as_json=as_json)
    return None


def _predict(
    model: Model[Any, Any],
    files: Sequence[str],
    texts: Sequence[str],
    to: Path | None,
    *,
    batch_size: int,
    as_json: bool,
) -> None:
    rows = _rows(model, _sources(model, files, texts, to), to, batch_size=batch_size)
    if as_json:
        for row in rows:
            terminal.write(json.dumps(row))
        return
    for line in _table(list(rows)):
        terminal.write(line)


def _prompts(files: Sequence[str], texts: Sequence[str], to: Path | None) -> list[str]:
    """Returns the prompts in files. Raises DataError, and BadParameter for what a language model does not take."""
    if to is not None:
        raise typer.BadParameter("--output works only with segmentation models; this is a language model")
    if texts:
        raise typer.BadParameter("--text works only with text classifiers; for a language model, use --prompt")
    return [prompt for file in files for prompt in _lines(file, strip=False)]


def _sources(model: Model[Any, Any], files: Sequence[str], texts: Sequence[str], to: Path | None) -> list[Any]:
    """Returns the single pictures or texts. Raises DataError, and BadParameter for what the model does not take."""
    if to is not None and model.recipe != "segmentation":
        raise typer.BadParameter(f"--output works only with segmentation models; this is a {model.recipe} model")
    if model.recipe == "text-classification":
        return [*texts, *(text for file in files for text in _lines(file))]
    if texts:
        raise typer.BadParameter(f"--text works only with text models; this is a {model.recipe} model")
    if _STDIN in files:
        raise typer.BadParameter("- works only with texts: give files of pictures")
    return model.listed(list(files))[0]


def _lines(file: str, *, strip: bool = True) -> list[str]:
    from torchyard.models.textlines import decoded, lines, lines_of

    if file != _STDIN:
        return lines(Path(file), strip=strip)
    return lines_of(decoded(sys.stdin.buffer.read(), "standard input"), "standard input", strip=strip)


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
