"""How programs write to a terminal: data to stdout, sentences to stderr, sizes and durations as people read them.

What is written may be another user's text. A terminal gets no control characters of it, except colours; a pipe gets it
unchanged.
"""

from datetime import UTC, datetime
import math
import os
import re
import sys
from typing import TextIO

_COLOUR = r"\x1b\[[0-9;:]*m"
_CONTROL = re.compile(
    rf"(?P<colour>{_COLOUR})"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f\n]*(?:\x07|\x1b\\|\x9c)"  # OSC, DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[ -/]*[0-~]"  # other escape sequences
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"  # single characters, and unfinished sequences
)
_RESET = "\x1b[0m"
_PREFIXES = ("", " k", " M", " G", " T", " P")
_MOST_WHOLE = 1e15
"""Above it, a number is written with an exponent."""


def write(line: str) -> None:
    """Writes a line of data."""
    sys.stdout.write(f"{shown(line) if sys.stdout.isatty() else line}\n")


def write_piece(text: str) -> None:
    """Writes a part of a line of data, at once. Control characters that two parts make together are none in either."""
    sys.stdout.write(shown(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def note(text: str) -> None:
    """Writes a sentence for people."""
    sys.stderr.write(f"{shown(text) if sys.stderr.isatty() else text}\n")
    sys.stderr.flush()


def shown(text: str) -> str:
    """Returns `text` as a terminal may get it: of its control characters, colours, newlines and tabs are left.

    Other escape sequences are removed, as a log with a progress bar is full of them. So are characters that change the
    direction of text. Each line ends in the terminal's own colours.
    """
    safe = _CONTROL.sub(lambda found: found["colour"] or "", text)
    return "\n".join(line + _RESET if _ends_coloured(line) else line for line in safe.split("\n"))


def plain(text: str) -> str:
    """Returns `text` on one line, with a space for each newline and tab, and without colours."""
    return re.sub(r"[\n\t]", " ", re.sub(_COLOUR, "", shown(text)))


def paint(text: str, style: str, stream: TextIO) -> str:
    """`text` in a style (an SGR code), where the stream is a terminal that shows colours."""
    plain_text = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain_text or not stream.isatty() else f"\x1b[{style}m{text}{_RESET}"


def size(count: int) -> str:
    """Bytes as people read them: `812 B`, `1.4 MiB`."""
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while float(_rounded(value, ".1f")) >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{count} B" if units[0] == "B" else f"{_rounded(value, '.1f')} {units[0]}"


def number(value: float) -> str:
    """Four digits, and from 1,000 on the whole number: `0.3142`, `98.77`, `12,346`."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    short = _rounded(value, ".4g")
    return _rounded(value, ",.0f") if 1000 <= abs(float(short)) < _MOST_WHOLE else _without_plus(short)


def setting(value: float) -> str:
    """A number that was set, as it can be typed: `0.0003`, `1e-5`, `1500000`."""
    return number(value).replace(",", "")


def scaled(value: float) -> str:
    """Three digits and a decimal prefix: `1.23 M`."""
    left, power = float(_rounded(value, ".3g")), 0
    while abs(left) >= 1000 and power < len(_PREFIXES) - 1:
        left, power = left / 1000, power + 1
    return f"{_rounded(left, '.3g')}{_PREFIXES[power]}"


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


def _rounded(value: float, form: str) -> str:
    """Formats a number, halves away from zero, as the page does: Python rounds them to an even digit."""
    return f"{math.nextafter(value, math.copysign(math.inf, value)) if value else value:{form}}"


def _without_plus(short: str) -> str:
    return re.sub(r"e([-+])0*", lambda found: f"e{found[1].strip('+')}", short)


def _ends_coloured(line: str) -> bool:
    colours = re.findall(_COLOUR, line)
    return bool(colours) and colours[-1] not in {"\x1b[m", _RESET}
