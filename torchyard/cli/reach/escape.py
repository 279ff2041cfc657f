"""What is typed in a shell, of which `~.` after a newline is for the command line itself, as in ssh."""

_ESCAPE, _LEAVE = ord("~"), ord(".")
_NEWLINES = frozenset(b"\r\n")


class Typed:
    """Finds the escape `~.` in what is typed."""

    def __init__(self) -> None:
        self.is_leaving = False
        """Whether the user wants to leave."""
        self._begins_line = True
        self._is_escaped = False

    def feed(self, content: bytes) -> bytes:
        """Returns what the program gets of it: nothing after `~.`, and `~` for `~~`."""
        if not self._is_escaped and _ESCAPE not in content:  # nearly always
            self._begins_line = content[-1] in _NEWLINES if content else self._begins_line
            return content
        passed = bytearray()
        for byte in content:
            if self._is_escaped and byte == _LEAVE:
                self.is_leaving = True
                break
            if self._is_escaped and byte != _ESCAPE:
                passed.append(_ESCAPE)
            if byte == _ESCAPE and self._begins_line and not self._is_escaped:
                self._is_escaped = True
                continue
            passed.append(byte)
            self._is_escaped, self._begins_line = False, byte in _NEWLINES
        return bytes(passed)
