"""The documents name what is there: links, anchors, pages, settings, commands."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
import re
from urllib.parse import unquote

import api.settings
import controller.settings
import worker.settings

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "deploy/server/README.md",
    *sorted(DOCS.rglob("*.md")),
]
PROGRAMS = ("torchyard", "scheduling", "store", "api", "controller", "worker", "trainer", "migrations")

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(
    r"(?:torchyard|scheduling|store|api|controller|worker|trainer|migrations|bench|tests|deploy)(?:/[a-z0-9_.-]+)+/?"
)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_MAKE = re.compile(r"(?:^|`)make ([a-z][a-z-]*)", re.MULTILINE)
_SETTING = re.compile(r"TORCHYARD_[A-Z_]+")


def test_each_link_and_anchor_leads_somewhere() -> None:
    assert (
        _wrong(lambda document: {target for target in _links(document) if not _leads_somewhere(document, target)}) == []
    )


def test_the_contents_of_a_folder_name_each_page() -> None:
    for folder in (DOCS, DOCS / "operating", DOCS / "reference", DOCS / "decisions"):
        listed = {(folder / target.partition("#")[0]).resolve() for target in _links(folder / "README.md")}
        assert [page.name for page in folder.glob("*.md") if page not in {folder / "README.md", *listed}] == []


def test_each_path_of_the_tree_that_a_document_names_is_there() -> None:
    def absent(document: Path) -> set[str]:
        named = {code for code in _CODE.findall(document.read_text()) if _PATH.fullmatch(code)}
        return {path for path in named if not (ROOT / path).exists()}

    assert _wrong(absent) == []


def test_each_setting_that_a_document_names_is_there() -> None:
    known = set(_settings()) | _names_in_the_code()

    def absent(document: Path) -> set[str]:
        named = set(_SETTING.findall(document.read_text()))
        return {name for name in named if name not in known and not _begins_one(name, known)}

    assert _wrong(absent) == []


def test_each_setting_of_the_programs_is_documented() -> None:
    documented = {name for page in (DOCS / "operating").glob("*.md") for name in _SETTING.findall(page.read_text())}
    assert sorted(set(_settings()) - documented) == []


def test_the_defaults_of_settings_are_those_of_the_programs() -> None:
    documented = {
        name: default
        for page in ("settings.md", "limits.md")
        for names, defaults in re.findall(
            r"^\| (`TORCHYARD_[^|]*) \| ([^|]*) \|", (DOCS / "operating" / page).read_text(), re.M
        )
        for name, default in zip(_SETTING.findall(names), re.findall(r"[\w.]+", defaults), strict=False)
    }
    defaults = {
        name: str(default) for name, default in _settings().items() if isinstance(default, (int, str)) and default
    }
    assert {name: documented[name] for name in documented.keys() & defaults} == {
        name: defaults[name] for name in documented.keys() & defaults
    }
    assert len(documented.keys() & defaults) > 20


def test_each_command_of_make_in_a_document_is_one() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = [name for document in DOCUMENTS for name in _MAKE.findall(document.read_text())]
    assert sorted(set(named) - targets) == []
    assert len(named) > 20


def test_what_is_not_there_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `title`, of two\n## Same\n## Same\n[a](#a-title-of-two) [b](#same-1) [c](#gone) [d](gone.md)\n"
    )
    assert [target for target in _links(page) if not _leads_somewhere(page, target)] == ["#gone", "gone.md"]
    assert _begins_one("TORCHYARD_KEEP_", _settings()) and not _begins_one("TORCHYARD_KEPT_", _settings())


def _wrong(names_in: Callable[[Path], set[str]]) -> list[str]:
    """Returns what is found in each document, after its path."""
    return [f"{path.relative_to(ROOT)}: {name}" for path in DOCUMENTS for name in sorted(names_in(path))]


def _links(document: Path) -> list[str]:
    """Returns the targets of the links into the tree."""
    text = _CODE.sub("", _FENCE.sub("", document.read_text()))
    return [target for target in _LINK.findall(text) if not re.match(r"[a-z]+:", target)]


def _leads_somewhere(document: Path, target: str) -> bool:
    path, _, anchor = unquote(target).partition("#")
    file = (document.parent / path) if path else document
    return file.exists() and (not anchor or anchor in _anchors(file))


def _anchors(document: Path) -> Iterator[str]:
    """The anchors that GitHub gives to the headings."""
    seen = Counter[str]()
    for heading in _HEADING.findall(_FENCE.sub("", document.read_text())):
        title = re.sub(r"\]\([^)]*\)", "]", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        yield f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor
        seen[anchor] += 1


def _begins_one(name: str, known: Collection[str]) -> bool:
    return name.endswith("_") and any(one.startswith(name) for one in known)


@cache
def _settings() -> dict[str, object]:
    """Returns the variables that the API and the workers read, with their defaults."""
    programs = (api.settings.Settings, controller.settings.Settings, worker.settings.Settings)
    fields = {name: field for program in programs for name, field in program.model_fields.items()}
    return {f"TORCHYARD_{name.upper()}": field.default for name, field in fields.items()}


@cache
def _names_in_the_code() -> set[str]:
    """Returns the variables that sources name: those that are no setting, such as what a rank is told."""
    suffixes = {".py", ".ts", ".js", ".yml", ".yaml"}
    folders = [ROOT / name for name in (*PROGRAMS, "web/browser", "bench", "deploy", "tests")]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in suffixes]
    files += [ROOT / name for name in ("Makefile", "Dockerfile", "docker-compose.yml", "web/vite.config.ts")]
    return {name for file in files for name in _SETTING.findall(file.read_text(errors="replace"))}
