"""`torchyard help`: a page of the documentation, or the help of a command, in the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
import os
from pathlib import Path
import re
import sys
from typing import Annotated

import typer

from torchyard.cli.commands import COMMANDS
from torchyard.host import terminal

_DOCS = Path(__file__).parent / "docs"
_FOLDERS = {"": "Guides", "reference": "Reference", "operating": "Operating a service"}
"""The folders of the pages, and their headings in the list."""
_INDEX = "README"
_IMAGE = re.compile(r"!\[[^\[\]]*\]\([^()]*\)")
_LINK = re.compile(r"\[([^\[\]]*)\]\(([^()#\s]*)(?:#[^()\s]*)?\)")
_MOST_COLUMNS = 100


@dataclass(frozen=True)
class Topic:
    """A page of the documentation. `name`: what is typed, unique among topics."""

    name: str
    path: Path

    @property
    def title(self) -> str:
        with self.path.open(encoding="utf-8") as page:
            return page.readline().lstrip("# ").rstrip()

    @property
    def folder(self) -> str:
        return self.path.parent.relative_to(_DOCS).as_posix().removeprefix(".")


def names(incomplete: str) -> list[str]:
    """Returns the topics and commands that begin so."""
    return sorted(name for name in {*topics(), *COMMANDS} if name.startswith(incomplete))


def show_help(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="A topic, or a command. Default: list both.", autocompletion=names),
    ] = None,
) -> None:
    """Show a page of the documentation, or the help of a command.

    A terminal shows it in your pager ($PAGER). A pipe gets the page's Markdown.
    """
    known = topics()
    if not words:
        _list(ctx, known)
        return
    topic = known.get("/".join(words).removesuffix(".md"))
    if topic is not None:
        _show(topic, known)
    elif words[0] in COMMANDS:
        _show_command(ctx, words, known)
    else:
        ctx.fail(f"unknown topic {' '.join(words)!r}{_near(words[0], known)} See `{ctx.command_path}` for all topics.")


def topics() -> dict[str, Topic]:
    """Returns the topics by name, in the order of the list.

    A guide has the name of its file. A page of a folder has it too, unless a guide or a command has this name: it is
    then `FOLDER/NAME`.
    """
    found: dict[str, Topic] = {}
    for folder in _FOLDERS:
        for path in sorted((_DOCS / folder).glob("*.md")):
            name = folder if path.stem == _INDEX else path.stem
            if folder and (name in found or name in COMMANDS):
                name = f"{folder}/{name}"
            if name:
                found[name] = Topic(name, path)
    return found


def _list(ctx: typer.Context, known: dict[str, Topic]) -> None:
    formatter = ctx.make_formatter()
    for folder, heading in _FOLDERS.items():
        with formatter.section(f"{heading} (torchyard help TOPIC)"):
            formatter.write_dl([(name, topic.title) for name, topic in known.items() if topic.folder == folder])
    terminal.write(f"{ctx.find_root().get_help()}\n\n{formatter.getvalue().rstrip()}")


def _show_command(ctx: typer.Context, words: list[str], known: dict[str, Topic]) -> None:
    from torchyard.cli import app

    app([*words, "--help"], prog_name=ctx.find_root().info_name, standalone_mode=False)
    pages = [name for name in known if name.endswith(f"/{words[0]}")]
    if pages:
        terminal.write(f"\nSee also: {', '.join(f'`torchyard help {name}`' for name in pages)}")


def _show(topic: Topic, known: dict[str, Topic]) -> None:
    text = _IMAGE.sub("", topic.path.read_text(encoding="utf-8"))
    by_path = {other.path: name for name, other in known.items()}
    linked = [by_path.get(Path(os.path.normpath(topic.path.parent / to))) for _, to in _LINK.findall(text)]
    others = list(dict.fromkeys(name for name in linked if name not in {None, topic.name}))
    text = _LINK.sub(lambda found: f"{found[1]} ({found[2]})" if "://" in found[2] else found[1], text).rstrip()
    also = [f"`torchyard {topic.name} --help`"] if topic.name in COMMANDS else []
    also += [f"`torchyard help {name}`" for name in others]
    text = "\n\n".join([text, *([f"See also: {', '.join(also)}"] if also else [])])
    if sys.stdout.isatty():
        _page(text)
    else:
        terminal.write(text)


def _page(text: str) -> None:
    from rich.console import Console  # which takes long to import
    from rich.markdown import Markdown
    from rich.theme import Theme

    os.environ.setdefault("LESS", "-FRX")  # colours, and no pager for what fits on the screen
    console = Console(width=min(Console().width, _MOST_COLUMNS), theme=Theme({"markdown.code": "cyan"}))
    with console.pager(styles=True):
        console.print(Markdown(text, code_theme="ansi_dark", hyperlinks=False))


def _near(word: str, known: dict[str, Topic]) -> str:
    wanted = word.lower()
    said = [name for name, topic in known.items() if wanted in name or wanted in topic.title.lower()]
    near = list(dict.fromkeys([*get_close_matches(word, [*known, *COMMANDS]), *said]))[:4]
    return f"; did you mean {' or '.join(f'`{name}`' for name in near)}?" if near else "."
