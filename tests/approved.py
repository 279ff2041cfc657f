"""Approved texts: the words that a user reads, beside the tests that compare them.

A test of `tests/api/test_prices.py` asks `approved("detail")` for the text in `tests/api/approved/test_prices.yaml`
that stands below the name of the test at `detail`. In a test with parameters, `approved.of_row("detail")` is the text
of the row, at `detail[id]`; both databases share one. A text that is missing, or that its test no longer asks for,
fails the test. `make approve` writes what the tests see.
"""

from collections.abc import Generator
import fcntl
from functools import cache
import os
from pathlib import Path
import re

import pytest
import yaml

Texts = dict[str, dict[str, str]]
"""The texts of a file: for each test, by their keys."""
COLLECTED = pytest.StashKey[list[pytest.Item]]()
"""All tests that this process has collected, those too that it leaves out."""
_FOLDER = Path(__file__).parent
_DATABASE = re.compile(r"(^|-)(sqlite|postgresql)(?=-|$)")


class _Dumper(yaml.SafeDumper):
    """Writes each text on a line, or its lines as a block."""


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent)


class Approved:
    """The approved texts of one test."""

    def __init__(self, item: pytest.Item) -> None:
        self._file = file_of(item.path)
        self._test, self._row = name_of(item)
        self._writes = bool(item.config.getoption("approve"))
        self._asked: dict[str, _Text] = {}

    def __call__(self, word: str, **values: object) -> str:
        """Returns the text at `word`, with each `{name}` in it replaced by the value of that name."""
        stored = texts_in(self._file).get(self._test, {}).get(word)
        if stored is None and not self._writes:
            pytest.fail(f"{self._file.relative_to(_FOLDER)} has no text at {self._test}: {word} (see `make approve`)")
        if word in self._asked:  # again, perhaps with other values
            return _Text.of(self._asked[word].pattern, values, settable=False)
        self._asked[word] = _Text.of(stored or "", values, settable=self._writes)
        return self._asked[word]

    def of_row(self, word: str, **values: object) -> str:
        """Returns the text at `word` that belongs to the parameters with which the test runs."""
        return self(f"{word}[{self._row}]", **values)

    def settle(self) -> None:
        """Fails the test if it has asked for fewer texts than are stored for it. Writes instead with `--approve`."""
        stored = texts_in(self._file).get(self._test, {})
        own = {key for key in stored if _row_of(key) in {"", self._row}}
        if self._writes:
            asked = {key: text.pattern for key, text in self._asked.items()}
            if asked != {key: stored[key] for key in own}:
                _write(self._file, self._test, remove=own, add=asked)
        elif unused := own - set(self._asked):
            pytest.fail(f"{self._file.relative_to(_FOLDER)} has texts that {self._test} does not use: {sorted(unused)}")


class _Text(str):
    """A text that takes, where it may, that to which it is first compared."""

    __slots__ = ("_seen", "_settable", "_values", "pattern")

    pattern: str
    _seen: str | None
    _settable: bool
    _values: dict[str, str]

    @classmethod
    def of(cls, pattern: str, values: dict[str, object], *, settable: bool) -> "_Text":
        shown = {name: str(value) for name, value in values.items()}
        filled = re.sub(r"\{(\w+)\}", lambda found: shown.get(found[1], found[0]), pattern) if shown else pattern
        text = cls(filled)
        text.pattern, text._values, text._settable, text._seen = pattern, shown, settable, None
        return text

    def __eq__(self, other: object) -> bool:
        if not self._settable or not isinstance(other, str):
            return str.__eq__(self, other)
        if self._seen is None:
            self._seen = str(other)
            if not str.__eq__(self, other):
                self.pattern = self._pattern_of(self._seen)
        return self._seen == str(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def _pattern_of(self, text: str) -> str:
        """Returns the text with the names of the values in their places, the longest first."""
        for name, value in sorted(self._values.items(), key=lambda one: -len(one[1])):
            if value:
                whole = f"(?<!{_kind(value[0])}){re.escape(value)}(?!{_kind(value[-1])})"
                text = re.sub(whole, f"{{{name}}}", text)
        return text


def _kind(character: str) -> str:
    """Returns the pattern of the characters that would make a value a part of something longer."""
    return r"\d" if character.isdigit() else r"[^\W\d_]" if character.isalpha() else r"\0"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--approve", action="store_true", help="write the texts that tests see as approved")


@pytest.fixture
def approved(request: pytest.FixtureRequest) -> Approved:
    return Approved(request.node)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Function) -> Generator[None]:
    """Settles the texts of a test that has passed."""
    yield
    texts = item.funcargs.get("approved")
    if isinstance(texts, Approved):
        texts.settle()


def file_of(test_file: Path) -> Path:
    return test_file.parent / "approved" / f"{test_file.stem}.yaml"


def name_of(item: pytest.Item) -> tuple[str, str]:
    """Returns the name of a test without its parameters, and the id of these without that of the database.

    An id without a character, as that of an empty text, is `empty`.
    """
    name, bracket, parameters = item.name.partition("[")
    parameters = parameters.removesuffix("]")
    row = _DATABASE.sub("", parameters).strip("-")
    return name, row or ("empty" if bracket and parameters not in {"sqlite", "postgresql"} else "")


@cache
def texts_in(file: Path) -> Texts:
    return yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader) if file.exists() else {}


def stale_in(items: list[pytest.Item], file: Path) -> list[tuple[str, str]]:
    """Returns the texts of a file, each with its test, that belong to none of the file's tests."""
    rows = [name_of(item) for item in items]
    names = {*rows, *((test, "") for test, _ in rows)}
    return [(test, key) for test, texts in texts_in(file).items() for key in texts if (test, _row_of(key)) not in names]


def write_texts(file: Path, texts: Texts) -> None:
    """Writes the texts in the order of their tests and keys."""
    ordered = {test: dict(sorted(texts[test].items())) for test in sorted(texts) if texts[test]}
    if ordered:
        file.write_text(yaml.dump(ordered, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=100000))
    else:
        file.unlink(missing_ok=True)


def _row_of(key: str) -> str:
    return key.partition("[")[2].removesuffix("]")


def _write(file: Path, test: str, *, remove: set[str], add: dict[str, str]) -> None:
    """Changes the texts of a test, and of no other, which another process may write now."""
    file.parent.mkdir(exist_ok=True)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        texts_in.cache_clear()
        texts = texts_in(file)
        kept = {key: text for key, text in texts.get(test, {}).items() if key not in remove}
        write_texts(file, {**texts, test: kept | add})
    finally:
        os.close(folder)
        texts_in.cache_clear()
