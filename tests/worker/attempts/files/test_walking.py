"""What a walk costs is bounded, whatever the patterns are, and however many folders a job has made."""

from pathlib import Path
import re
import tracemalloc

import pytest

from worker.attempts.files.matching import Search
from worker.attempts.files.walking import Entry, Patterns, TooMany, Walk

MANY = Patterns(["/".join(["**", "a*"] * 80)[:470] + f"/{number}" for number in range(32)])
"""As many and as long as `keep` may have them. Their parts are compared with each name that begins with an `a`."""


def make_folders(root: Path, *, many: int) -> None:
    base = root.joinpath(*"a" * 10)
    base.mkdir(parents=True)
    for number in range(many):
        (base / f"a{number}").mkdir()


def walk(root: Path, patterns: Patterns | None, *, most: int = 1_000_000) -> list[Entry]:
    return [found for found in Walk(root, (), most=most, patterns=patterns).entries() if found is not None]


def test_a_walk_keeps_nothing_of_the_folders_that_it_has_left(tmp_path: Path) -> None:
    make_folders(tmp_path, many=300)
    tracemalloc.start()
    try:
        assert walk(tmp_path, MANY) == []
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_nothing_is_kept_of_patterns_whose_walk_has_ended(tmp_path: Path) -> None:
    (tmp_path / "a").touch()

    def look(number: int) -> None:
        pattern = f"{'*b' * 100}{number}"
        assert walk(tmp_path, Patterns([pattern])) == []
        assert Search(tmp_path).find((), [pattern]) == {}

    look(-1)
    tracemalloc.start()
    try:
        for number in range(30):
            look(number)
        re.purge()  # of the last few hundred, whoever they are of
        assert tracemalloc.get_traced_memory()[0] < 50_000
    finally:
        tracemalloc.stop()


def test_names_that_many_parts_of_patterns_are_compared_with_count_more(tmp_path: Path) -> None:
    make_folders(tmp_path, many=300)
    assert walk(tmp_path, Patterns(["**/*.pt"]), most=320) == []
    with pytest.raises(TooMany):
        walk(tmp_path, MANY, most=320)


def test_a_walk_finds_files_at_any_depth_and_goes_on_behind_folders_that_it_has_left(tmp_path: Path) -> None:
    for path in ("b/c/d", "b/e", "f/g", "h"):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    assert sorted(found.path for found in walk(tmp_path, None)) == ["b/c/d", "b/e", "f/g", "h"]
    assert sorted(found.path for found in walk(tmp_path, Patterns(["b", "f/*"]))) == ["b/c/d", "b/e", "f/g"]
