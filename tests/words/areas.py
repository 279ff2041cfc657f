"""The words of each area, as its file in `words/` has them: below the name of each source, a sentence a line."""

import ast
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from tests.words import page_words, python_words

ROOT = Path(__file__).parents[2]
PROGRAMS = ("torchyard", "scheduling", "store", "api", "controller", "worker", "trainer", "migrations")
REASONS = (
    *("scheduling", "api/advice", "controller", "store/jobs", "store/attempts", "store/queue", "store/sweeps"),
    *(
        "torchyard/contract/queue",
        "torchyard/contract/states.py",
        "worker/attempts",
        "worker/engines",
        "worker/devices",
    ),
)
"""What says why a job waits, what happened to it, and what to do."""
AREAS = ("cli", "errors", "page", "reasons")


def words_of(area: str) -> str:
    """Returns the content of the area's file."""
    found = {source: list(dict.fromkeys(texts)) for source, texts in _sources(area)}
    return "\n".join(
        "".join(f"{line}\n" for line in (source, *(f"    {_line(text)}" for text in texts)))
        for source, texts in sorted(found.items())
        if texts
    )


def _sources(area: str) -> Iterator[tuple[str, Iterator[str]]]:
    if area == "page":
        for path in chain((ROOT / "web/src").rglob("*.svelte"), (ROOT / "web/src").rglob("*.ts")):
            if not path.name.endswith((".test.ts", ".d.ts", "testing.ts")):
                read = page_words.in_component if path.suffix == ".svelte" else page_words.in_script
                yield str(path.relative_to(ROOT)), read(path.read_text())
        return
    folders = {"cli": ("torchyard/cli",), "reasons": REASONS, "errors": PROGRAMS}[area]
    for path in chain.from_iterable(_files(ROOT / folder) for folder in folders):
        source = path.read_text()
        if area == "errors":
            yield str(path.relative_to(ROOT)), python_words.raised(source)
        else:
            yield str(path.relative_to(ROOT)), python_words.said(ast.parse(source), helps=area == "cli")


def _files(folder: Path) -> list[Path]:
    return [folder] if folder.suffix else sorted(folder.rglob("*.py"))


def _line(text: str) -> str:
    return " ".join(text.split())
