from collections.abc import Iterator

class error(Exception): ...

class Options:
    case_sensitive: bool
    log_errors: bool
    max_mem: int
    never_capture: bool
    never_nl: bool

class Match:
    def span(self, group: int = 0) -> tuple[int, int]: ...

class _Regexp:
    def search(self, text: str | bytes, pos: int | None = None) -> Match | None: ...
    def finditer(self, text: str | bytes) -> Iterator[Match]: ...

def compile(pattern: str | bytes, options: Options | None = None) -> _Regexp: ...
def purge() -> None: ...
