"""What of another user's text reaches a terminal."""

import io
import re
import sys

from hypothesis import given
from hypothesis import strategies as st
import pytest

from torchyard.host import terminal

_BIDI = "".join(map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]))
_PIECES = ("\x1b", "[", "]", "P", "m", "31", ";", "52;c;aGk=", "\x07", "\\", "\x9b", "\x9c", "\x9d", "\r", "\n", "\t")
_TEXTS = st.lists(st.sampled_from([*_PIECES, *_BIDI]) | st.characters(max_codepoint=0xFF), max_size=40).map("".join)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b]52;c;aGk=\x07b", "ab"),
        ("a\x1b]52;c;aGk=\x1b\\b", "ab"),
        ("a\x9d52;c;aGk=\x9cb", "ab"),
        ("\x1b]8;;http://example.com\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x1b[2Jb\x1b[1;1Hc", "abc"),
        ("a\x9b2Jb", "ab"),
        ('a\x1bP$q"p\x1b\\b', "ab"),
        ("a\x1bcb\x1b(0c\x1b#8d", "abcd"),
        ("a\x1b[>4;2mb", "ab"),
        ("a\x1b]52;c;aGk=", "a52;c;aGk="),
        ("a\x1b]52;c;aGk=\nb\x07", "a52;c;aGk=\nb"),
        ("a\x1b[31", "a31"),
        ("a\x1b", "a"),
        ("10%\r20%\x08\x7f\x85", "10%20%"),
        (f"a{_BIDI}b", "ab"),
        ("a\tb\nc", "a\tb\nc"),
        ("naïve 日本 🎉 →", "naïve 日本 🎉 →"),
    ],
)
def test_a_terminal_gets_no_control_characters(text: str, shown: str) -> None:
    assert terminal.shown(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b[38;2;1;2;3mred\x1b[m", "\x1b[38;2;1;2;3mred\x1b[m"),
        ("\x1b[31mred", "\x1b[31mred\x1b[0m"),
        ("\x1b[8mhidden\nnext", "\x1b[8mhidden\x1b[0m\nnext"),
        ("\x1b[0m\x1b[1;31mred", "\x1b[0m\x1b[1;31mred\x1b[0m"),
        ("\x1b\x1b[31mred", "\x1b[31mred\x1b[0m"),
    ],
)
def test_a_terminal_gets_colours_which_end_with_their_line(text: str, shown: str) -> None:
    assert terminal.shown(text) == shown


@given(_TEXTS)
def test_of_any_text_only_colours_tabs_and_newlines_are_left(text: str) -> None:
    rest = re.sub(r"\x1b\[[0-9;:]*m", "", terminal.shown(text))
    assert not re.search(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI}]", rest)
    assert terminal.shown(terminal.shown(text)) == terminal.shown(text)
    assert not re.search(rf"[\x00-\x1f\x7f-\x9f{_BIDI}]", terminal.plain(text))


@given(st.text(st.characters(blacklist_categories=("Cc", "Cf", "Cs")) | st.sampled_from("\t\n")))
def test_text_without_control_characters_is_shown_as_it_is(text: str) -> None:
    assert terminal.shown(text) == text


@pytest.mark.parametrize(("stream", "shown"), [(_Terminal, "ab\n"), (io.StringIO, "a\x1b]52;c;aGk=\x07b\n")])
def test_only_a_pipe_gets_the_text_unchanged(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], shown: str
) -> None:
    out, err = stream(), stream()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    terminal.write("a\x1b]52;c;aGk=\x07b")
    terminal.note("a\x1b]52;c;aGk=\x07b")
    assert (out.getvalue(), err.getvalue()) == (shown, shown)


@pytest.mark.parametrize(("stream", "shown"), [(_Terminal, "[2Jab"), (io.StringIO, "\x1b[2Jab")])
def test_parts_of_a_line_make_no_control_characters_together(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], shown: str
) -> None:
    out = stream()
    monkeypatch.setattr(sys, "stdout", out)
    for part in ("\x1b", "[2", "Ja", "b"):
        terminal.write_piece(part)
    assert out.getvalue() == shown
