"""How programs write to a terminal: data to stdout, sentences to stderr, sizes and durations as people read them."""

from datetime import UTC, datetime
import os
import sys
from typing import TextIO


def write(line: str) -> None:
    """Writes a line of data."""
    sys.stdout.write(f"{line}\n")


def note(text: str) -> None:
    """Writes a sentence for people."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def paint(text: str, style: str, stream: TextIO) -> str:
    """`text` in a style (an SGR code), where the stream is a terminal that shows colours."""
    return f"\x1b[{style}m{text}\x1b[0m" if stream.isatty() and not os.environ.get("NO_COLOR") else text


def size(count: int) -> str:
    """Bytes as people read them: `812 B`, `1.4 MiB`."""
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{count} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def duration(seconds: float) -> str:
    """`8 s`, `3 m 20 s`, `2 h 5 m`, `3 d 4 h`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} m {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} m"
    return f"{hours // 24} d {hours % 24} h"


def ago(moment: datetime) -> str:
    return f"{duration((datetime.now(UTC) - moment).total_seconds())} ago"


def age(moment: datetime) -> str:
    """`8s`, `3m`, `2h`, `3d`: where there is little room."""
    return "".join(duration((datetime.now(UTC) - moment).total_seconds()).split()[:2])
