"""Finds the values of secrets in the bytes of a file that is read part by part."""

from collections.abc import Iterable
import json

from worker.host.beginnings import Beginnings

_LEAST_BYTES = 4
"""A shorter value is found in nearly every file."""
_FEW = 32
"""Up to so many texts are searched for one by one."""
_STEP = 1 << 20
"""Bytes that are searched at once."""


class SecretBytes:
    """The texts of which one is in each file that has a value: as it is, indented, or as JSON and Python write it."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        lines = {max(value.splitlines(), key=len, default="") for value in values}
        forms = {form.encode(errors="surrogatepass") for line in lines for form in (line, *_escaped(line))}
        self._texts = [form for form in forms if len(form) >= _LEAST_BYTES]
        self.longest = max(map(len, self._texts), default=0)
        many = self._texts if len(self._texts) > _FEW else []
        self._many = Beginnings((text.decode("latin-1") for text in many), least=_LEAST_BYTES)

    def __bool__(self) -> bool:
        """Returns whether there is anything to search for."""
        return bool(self._texts)

    def are_in(self, data: bytes) -> bool:
        """Returns whether the bytes have a value."""
        if len(self._texts) > _FEW:  # each further text would take the time by the length of the data
            return next(self._many.spans(data.decode("latin-1")), None) is not None
        return any(text in data for text in self._texts)

    def scan(self) -> "Scan":
        """Returns the search of one file."""
        return Scan(self)


class Scan:
    """Searches one file, whose bytes come in order."""

    def __init__(self, secrets: SecretBytes) -> None:
        self.found = False
        """Whether a value was in what has come."""
        self._secrets = secrets
        self._end = b""

    def update(self, data: bytes) -> None:
        """Searches the next bytes, together with the end of those before."""
        keep = self._secrets.longest - 1
        for start in range(0, len(data), _STEP):
            if self.found or keep < 0:
                return
            part = self._end + data[start : start + _STEP]
            self.found = self._secrets.are_in(part)
            self._end = part[-keep:] if keep else b""


def _escaped(value: str) -> tuple[str, ...]:
    return json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]
