"""All words that a user reads stand in `words/`, a file an area, and nobody changes one without a diff there."""

import ast

import pytest

from tests.words import page_words, python_words
from tests.words.areas import AREAS, ROOT, words_of

SOURCE = '''
def fetch(path):
    """Fetch a file.

    Wait for it.
    """
    logger.warning("it is late today")
    if not path:
        raise ConfigError(f"{path.name} is not a file", hint="name a file")
    return f"fetched {path} in {seconds:.1f} s, from {'the cache' if cached else hosts[0]}"


def where():
    """Returns the folder of a file."""
'''
COMPONENT = """
<script lang="ts">
  // it says nothing
  const name = "two words", id = "one", told = `${count} jobs wait`;
</script>
<!-- not this one -->
<p title="What it is" class="muted minor">
  Hello, {name}:
  {#if late}it is {late ? "too late" : "early"}.{/if}
</p>
<button>Stop</button>
<style>p { color: the red one; }</style>
"""


@pytest.mark.parametrize("area", AREAS)
def test_the_words_of_an_area_are_the_approved_ones(area: str, request: pytest.FixtureRequest) -> None:
    file, words = ROOT / "words" / f"{area}.txt", words_of(area)
    if request.config.getoption("approve"):
        file.write_text(words)
    assert file.read_text() == words, f"read the diff of {file.name} after `make approve`"


def test_sentences_of_python_are_found() -> None:
    tree = ast.parse(SOURCE)
    assert [*python_words.raised(SOURCE)] == ["{name} is not a file", "name a file"]
    assert [*python_words.said(tree, helps=True)] == [
        "Fetch a file.\n\nWait for it.",
        "fetched {path} in {seconds} s, from {…}",
        "the cache",
    ]
    assert [*python_words.said(tree, helps=False)] == ["fetched {path} in {seconds} s, from {…}", "the cache"]


def test_sentences_of_a_component_are_found() -> None:
    found = [*page_words.in_component(COMPONENT)]
    assert found == ["What it is", "too late", "Hello, {…}: it is {…}.", "Stop", "two words", "{…} jobs wait"]
