"""Approved texts are compared as a whole, written on demand, and each is used (tests/approved.py)."""

from collections import defaultdict
import os
from pathlib import Path
import re

import pytest

from tests import forked, forks
from tests.approved import COLLECTED, file_of, stale_in, texts_in, write_texts

forks.preload("pytest", "tests.approved")

ROOT = Path(__file__).parent.parent
TEST = """
import pytest

@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("name", ["one", "two words", ""])
def test_tells(approved, database, name):
    seen = {"code": "gone", "detail": f"No job has the name {name}."}
    assert seen == {"code": "gone", "detail": approved.of_row("detail")}

def test_fills(approved):
    assert "Job 17 is done.\\nIt took 170 s." == approved("told", job=17)
    assert "Job 8 is done.\\nIt took 170 s." == approved("told", job=8)
"""


def test_each_approved_text_belongs_to_a_test(request: pytest.FixtureRequest) -> None:
    """Judges the files that were collected whole."""
    parts = {argument.partition("::")[0] for argument in request.config.args if "::" in argument}
    items: defaultdict[Path, list[pytest.Item]] = defaultdict(list)
    for item in request.config.stash[COLLECTED]:
        items[item.path].append(item)
    whole = {file: found for file, found in items.items() if str(file.relative_to(ROOT)) not in parts}
    stale = {file_of(file): stale_in(found, file_of(file)) for file, found in whole.items()}
    if request.config.getoption("approve"):
        for file, texts in stale.items():
            kept = texts_in(file)
            write_texts(file, {test: {k: v for k, v in kept[test].items() if (test, k) not in texts} for test in kept})
        texts_in.cache_clear()
    else:
        assert {str(file): texts for file, texts in stale.items() if texts} == {}
    without_tests = [file for file in ROOT.glob("tests/**/approved/*.yaml") if not _test_file(file).exists()]
    assert without_tests == []


def test_texts_are_written_once_and_then_compared(tmp_path: Path) -> None:
    (tmp_path / "test_words.py").write_text(TEST)
    assert _run(tmp_path) == {"failed": 7}
    assert _run(tmp_path, "--approve") == {"passed": 7}
    file = tmp_path / "approved/test_words.yaml"
    assert (
        file.read_text()
        == """test_fills:
  told: |-
    Job {job} is done.
    It took 170 s.
test_tells:
  detail[empty]: No job has the name .
  detail[one]: No job has the name one.
  detail[two words]: No job has the name two words.
"""
    )
    assert _run(tmp_path) == {"passed": 7}
    file.write_text(file.read_text().replace("name one", "name won").replace("told: |-", "more: Nothing.\n  told: |-"))
    assert _run(tmp_path) == {"failed": 3, "passed": 4}


def test_a_text_is_not_approved_where_other_things_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "test_words.py").write_text("def test_it(approved):\n    assert (4, 'x') == (5, approved('x'))\n")
    assert _run(tmp_path, "--approve") == {"failed": 1}
    assert not (tmp_path / "approved").exists()


@pytest.mark.parametrize(
    "text", ["", " ", "a: b", "- a", "yes", "12", "a\n\n b \n", "\x1b[1mé…\x1b[0m", "#", "'\"\\", "a\r\nb"]
)
def test_any_text_is_read_as_it_was_written(text: str, tmp_path: Path) -> None:
    write_texts(tmp_path / "texts.yaml", {"test": {"key": text}})
    assert texts_in(tmp_path / "texts.yaml") == {"test": {"key": text}}


def _test_file(file: Path) -> Path:
    return file.parents[1] / f"{file.stem}.py"


def _run(folder: Path, *options: str) -> dict[str, int]:
    """Runs pytest on the folder in a process of its own, without our conftest."""
    given = ["-p", "tests.approved", "-p", "no:cacheprovider", "-q", *options]
    given += ["-c", "/dev/null", "--rootdir", str(folder), str(folder)]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    done = forked.run("pytest", *given, env=env, cwd=ROOT)
    return {word: int(count) for count, word in re.findall(r"(\d+) (failed|passed)", done.stdout.splitlines()[-1])}
