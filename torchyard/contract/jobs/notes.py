"""Notes of a job: Markdown that its owner writes, and that readers of the job see."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

MOST_NOTES_BYTES = 65_536
"""The most bytes of a job's notes, in UTF-8."""
MOST_SEARCHED = 4000
"""Characters from the beginning of notes that a search of a list reads."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_CONTROL_NAMES = {
    "\x07": "bell",
    "\x08": "backspace",
    "\x0c": "form feed",
    "\r": "carriage return",
    "\x1b": "escape",
    "\x7f": "delete",
}


def _storable(text: str) -> str:
    size = len(text.encode())
    if size > MOST_NOTES_BYTES:
        raise ValueError(f"has {size} bytes: notes have at most {MOST_NOTES_BYTES}")
    found = _CONTROL.search(text)
    if found is not None:
        character, line = found[0], text.count("\n", 0, found.start()) + 1
        name = _CONTROL_NAMES.get(character, "a control character")
        raise ValueError(
            f"line {line} has U+{ord(character):04X} ({name}): of these, notes have line feeds and tabs alone"
        )
    return text


Notes = Annotated[
    str,
    Field(max_length=MOST_NOTES_BYTES, description="the notes, as Markdown of at most 64 KiB; empty removes them"),
    AfterValidator(_storable),
]
