"""The documents name what is there: links, anchors, pages, files, modules, names in the code, settings, commands."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import cache
from itertools import product
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
FOLDERS = (
    *(
        "torchyard",
        "scheduling",
        "store",
        "api",
        "controller",
        "worker",
        "trainer",
        "migrations",
        "bench",
        "deploy",
        "tests",
    ),
    *("web", "examples", "docs", ".ci"),
)
"""What a document may name a file of."""
SOURCES = frozenset({".py", ".ts", ".js", ".svelte", ".css", ".toml", ".yaml", ".yml", ".mako", ".html"})
OF_USERS = frozenset({"train.py", "trian.py", "torchyard.toml", "torchyard.dump", "worker.lost"})
"""Files that stand in users' folders, and what they are told of."""
OF_OTHERS = frozenset(
    {"add_scalars", "no_new_privs", "proxy_cookie_path", "torchyard_blobs", "job_0192f3c2", "process_"}
)
"""Names in other programs' code, in data and in the names of Docker's volumes."""
BUILT = frozenset({"api/static"})

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_PATH = re.compile(rf"(?<![\w./-])(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./{{}},*-]*")
_FILE = re.compile(r"(?<![\w./*-])[\w./{},*-]+\.(?:py|ts|svelte)\b")
_DOTTED = re.compile(rf"(?<![\w./-])(?:{'|'.join(FOLDERS[:10])})(?:\.\w+)+")
_PAGE = re.compile(r"\bdocs/[\w/-]+\.md\b")
_MODULE = re.compile(r"-m ([a-z_]+(?:\.[a-z_]+)*)")
_NAME = re.compile(r"(?<![\w-])(?:[a-z]\w*_\w*|[A-Z]\w*[a-z]\w*|[a-z]+[A-Z]\w*|[a-z_]\w*(?=\())")
_MAKE = re.compile(r"(?:^|`)make ([a-z][a-z-]*)", re.MULTILINE)
_SETTING = re.compile(r"TORCHYARD_[A-Z_]+")


def test_each_link_and_anchor_leads_somewhere() -> None:
    assert (
        _wrong(lambda document: {target for target in _links(document) if not _leads_somewhere(document, target)}) == []
    )


def test_the_contents_of_a_folder_name_each_page() -> None:
    for folder in (DOCS, DOCS / "operating", DOCS / "decisions"):
        listed = {(folder / target.partition("#")[0]).resolve() for target in _links(folder / "README.md")}
        assert [page.name for page in folder.glob("*.md") if page not in {folder / "README.md", *listed}] == []


def test_the_contents_of_the_decisions_have_their_numbers_and_titles() -> None:
    rows = re.findall(r"^\| (\d+) \| \[(.*?)\]\((.*?)\)", (DOCS / "decisions/README.md").read_text(), re.MULTILINE)
    pages = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    assert [name for _, _, name in rows] == [page.name for page in pages]
    for (number, title, name), page in zip(rows, pages, strict=True):
        assert page.read_text().splitlines()[0] == f"# {number}. {title}"
        assert name.startswith(f"{int(number):04}-")


def test_each_file_that_a_document_names_is_there() -> None:
    def absent(document: Path) -> set[str]:
        codes = _codes(document)
        named = {path for code in codes for path in _PATH.findall(code)} - BUILT
        named |= {path for code in codes for path in _FILE.findall(code) if Path(path).name not in OF_USERS}
        return {name for name in named if not all(_is_file(one) for one in _alternatives(name))}

    assert _wrong(absent) == []


def test_each_module_that_a_document_names_is_there() -> None:
    def absent(document: Path) -> set[str]:
        named = {name for code in _codes(document) for name in _DOTTED.findall(code) if name not in OF_USERS}
        named |= {name for name in _MODULE.findall(document.read_text()) if name.partition(".")[0] in FOLDERS}
        return {name for name in named if not _is_importable(name)}

    assert _wrong(absent) == []


def test_each_name_that_a_document_quotes_is_in_the_code() -> None:
    def absent(document: Path) -> set[str]:
        codes = [_PATH.sub("", code) for code in _codes(document)]
        return {name for code in codes for name in _NAME.findall(code)} - _words() - OF_OTHERS

    assert _wrong(absent) == []


def test_each_document_that_the_code_names_is_there() -> None:
    named = {name for path in _paths() for name in _PAGE.findall(_source(ROOT / path))}
    assert sorted(name for name in named if not (ROOT / name).exists()) == []
    assert len(named) > 5


def test_each_setting_that_a_document_names_is_there() -> None:
    known = set(_settings()) | {word for word in _words() if word.startswith("TORCHYARD_")}

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


def test_the_tree_of_the_readme_is_that_of_the_project() -> None:
    shown = (ROOT / "README.md").read_text().partition("## The tree\n\n```\n")[2].partition("```")[0]
    parts = re.split(r"^(\w+)/ ", shown, flags=re.MULTILINE)[1:]
    texts = dict(zip(parts[::2], parts[1::2], strict=True))
    assert set(texts) == {folder for folder in FOLDERS if (ROOT / folder).is_dir() and not folder.startswith(".")}
    named = [(top, name) for top, text in texts.items() for name in re.findall(r"[\w/.]+/(?=[\s:,;)])|\w+\.py", text)]
    below = {top: [f"/{path}" for path in _paths() if path.startswith(f"{top}/")] for top in texts}
    below["web"] += ["/api/static"]
    wrong = [name for top, name in named if not any(path.endswith(f"/{name.rstrip('/')}") for path in below[top])]
    assert wrong == []
    assert len(named) > 30


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
    assert [_is_file(name) for name in ("api/app.py", "rundir.py", "api/gone.py", "tests/test_*s.py")] == [
        *(True, True, False, True)
    ]
    assert [_is_importable(name) for name in ("api.settings.Settings", "api.settings.Gone", "api.gone")] == [
        *(True, False, False)
    ]
    assert _alternatives("a/{b,c}.py") == ["a/b.py", "a/c.py"]
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


def _codes(document: Path) -> list[str]:
    """Returns what stands between backticks in the text."""
    return _CODE.findall(_FENCE.sub("", document.read_text()))


def _alternatives(name: str) -> list[str]:
    """Returns the names that `{a,b}` in a name stands for."""
    parts = [part.split(",") for part in re.split(r"[{}]", name)]
    return ["".join(chosen) for chosen in product(*parts)]


def _is_file(name: str) -> bool:
    """Whether a file or folder of the tree has this path, or ends with it. `*`, and a word in capitals, is any name."""
    pattern = re.sub(r"\\\*|\b[A-Z]{2,}\b", "[^/]*", re.escape(name.rstrip("/")))
    return any(re.search(rf"(^|/){pattern}$", path) for path in _paths())


def _is_importable(name: str) -> bool:
    """Whether the name is a module, or a name in one. A word in capitals is any name."""
    parts = [part for part in name.split(".") if not part.isupper()]
    for length in range(len(parts), 0, -1):
        package = ROOT.joinpath(*parts[:length])
        for file in (package.with_suffix(".py"), package / "__init__.py"):
            if file.exists():
                return all(re.search(rf"\b{part}\b", file.read_text()) for part in parts[length:])
    return (ROOT / parts[0]).is_dir() and len(parts) == 1


def _begins_one(name: str, known: Collection[str]) -> bool:
    return name.endswith("_") and any(one.startswith(name) for one in known)


@cache
def _settings() -> dict[str, object]:
    """Returns the variables that the API and the workers read, with their defaults."""
    programs = (api.settings.Settings, controller.settings.Settings, worker.settings.Settings)
    fields = {name: field for program in programs for name, field in program.model_fields.items()}
    return {f"TORCHYARD_{name.upper()}": field.default for name, field in fields.items()}


@cache
def _paths() -> list[str]:
    return [str(path.relative_to(ROOT)) for folder in FOLDERS for path in _walk(ROOT / folder)]


@cache
def _words() -> set[str]:
    """Returns every word of the sources, and the names of their files."""
    files = [ROOT / path for path in [*_paths(), "Makefile", "Dockerfile", "docker-compose.yml", "pyproject.toml"]]
    words = {word for file in files for word in re.findall(r"\w+", _source(file))}
    return words | {file.stem for file in files}


def _walk(folder: Path) -> Iterator[Path]:
    yield folder
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in {"node_modules", "__pycache__", "static", "build"} and not path.is_symlink():
            yield from _walk(path)


def _source(file: Path) -> str:
    """Returns the text of a source; nothing of another file, and of this one, which names what is nowhere."""
    is_source = file.suffix in SOURCES or file.name in {"Makefile", "Dockerfile"}
    return file.read_text(errors="replace") if is_source and file != Path(__file__) else ""
