"""Finds the sentences in the sources of the page: between tags, in attributes that are read, and in scripts."""

from collections.abc import Iterator
import re

_COMMENT = re.compile(r"<!--.*?-->|/\*.*?\*/|(?<![:\w\"'`])//[^\n]*", re.DOTALL)
_STYLE = re.compile(r"<style.*?</style>", re.DOTALL)
_SCRIPT = re.compile(r"<script.*?>(.*?)</script>", re.DOTALL)
_TEXT = re.compile(r">([^<>]+)<")
_ATTRIBUTE = re.compile(r"\s(?:title|aria-label|label|placeholder|alt|lead|what|sentence|caption)=\"([^\"]+)\"")
_LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`')
_WORDS = re.compile(r"[^\W\d_]{2,}[,.:;]? +(?:[^\W\d_]|\{)")
_LABEL = re.compile(r"[^\W\d_]{2,}")
_MARKUP = re.compile(r"^[#/:@]")


def in_component(source: str) -> Iterator[str]:
    """Yields the sentences and labels of a Svelte component: those of its script come last."""
    source = _STYLE.sub("", source)
    scripts = [found[1] for found in _SCRIPT.finditer(source)]
    template = _without_expressions(_COMMENT.sub("", _SCRIPT.sub("", source)))
    for found in _ATTRIBUTE.finditer(template):
        if _LABEL.search(found[1]):
            yield found[1]
    for found in _TEXT.finditer(f">{template}<"):
        text = " ".join(found[1].split())
        if _LABEL.search(re.sub(r"\{[^}]*\}", "", text)):
            yield text
    for script in scripts:
        yield from in_script(script)


def in_script(source: str) -> Iterator[str]:
    """Yields the literals of two words and more."""
    for found in _LITERAL.finditer(_COMMENT.sub("", source)):
        text = found[1] if found[1] is not None else _shortened(found[2])
        if _WORDS.search(text):
            yield " ".join(text.split())


def _without_expressions(template: str) -> str:
    """Returns the template with `{…}` for each expression, and nothing for each block; their literals stay in front."""
    parts, depth, start = list[str](), 0, 0
    literals = list[str]()
    for at, character in enumerate(template):
        if character == "{":
            if depth == 0:
                parts.append(template[start:at])
                start = at + 1
            depth += 1
        elif character == "}" and depth:
            depth -= 1
            if depth == 0:
                inner = template[start:at]
                literals += [text for text in in_script(inner) if "<" not in text]
                parts.append("" if _MARKUP.match(inner) else "{…}")
                start = at + 1
    text = "".join([*parts, template[start:]])
    return "".join(f"<i>{literal}</i>" for literal in literals) + text


def _shortened(literal: str) -> str:
    return re.sub(r"\$\{[^{}]*\}", "{…}", literal)
