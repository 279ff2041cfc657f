"""How Sphinx builds docs/ into the site that the service has at `/docs`: `make docs`."""

import gc
from pathlib import Path
import re
import shutil
from typing import Any
from urllib.parse import unquote

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform
from sphinx.writers.html5 import HTML5Translator

import torchyard

gc.disable()  # a quarter of a build: docutils makes many objects, and the process is short

ROOT = Path(__file__).parents[2]
PAGES = (
    "first-hour",
    "concepts",
    "coming-from",
    "your-program",
    "sweeps",
    "models",
    "second-machine",
    "reach",
    "operating/README",
    "rest-and-python",
    "reference/README",
)
"""The pages beside the text, tasks first. The pages of a folder are in the order in which its README links to them."""
FOR_DEVELOPERS = {
    "Contributing": "CONTRIBUTING.md",
    "Reading the code": "docs/code.md",
    "Decisions": "docs/decisions/README.md",
}
LINKED = set(FOR_DEVELOPERS.values())
"""The files outside the site to which it links, by their paths in the tree. Each build reads all pages."""

project = "Torchyard"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
# For those who change the code. They cost as much time as all other pages, and the search would find little else.
exclude_patterns = ["site", "code.md", "decisions"]
suppress_warnings = [
    "toc.not_included",  # `_sidebar` names each page, or fails
    "misc.highlighting_failure",  # an example may leave a part out with `…`
]

myst_heading_anchors = 6

default_role = "literal"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False  # a sentence such as "The metric: its values" names no type

html_theme = "basic"
templates_path = ["."]
html_static_path = ["site.css", "site.js", "../../web/src/styles/tokens.css", "../../web/src/signs/favicon.svg"]
html_title = "Torchyard"
html_use_index = False
html_domain_indices = False
html_copy_source = False
html_permalinks_icon = "#"


_CODE = re.compile(r"(`[^`]+`)(?=\w)")


class LinksToSources(SphinxTransform):
    """Lets a link to a file that is no page of the site lead to its text: a decision, the README, a source."""

    default_priority = 10

    def apply(self, **options: Any) -> None:
        for link in [
            *self.document.findall(addnodes.pending_xref),
            *self.document.findall(addnodes.download_reference),
        ]:
            path = self._path_of(link)
            if path is None or not path.is_file() or not path.is_relative_to(ROOT):
                continue
            below = path.relative_to(ROOT).as_posix()
            LINKED.add(below)
            up = "../" * self.env.current_document.docname.count("/")
            link.replace_self(nodes.reference("", "", *link.children, refuri=f"{up}source/{below}.txt", internal=True))

    def _path_of(self, link: nodes.Element) -> Path | None:
        """Returns the file of a link that leads to no page."""
        if link.get("reftype") != "myst" or link["reftarget"] in self.env.found_docs:
            return None
        if link.get("refdomain") == "doc":
            return (Path(self.env.srcdir) / f"{link['reftarget']}.md").resolve()
        target = unquote(link["reftarget"].partition("#")[0])
        return (
            (Path(self.env.doc2path(self.env.current_document.docname)).parent / target).resolve() if target else None
        )


class Translator(HTML5Translator):
    """Puts each table into a box, in which a wide one scrolls."""

    def visit_table(self, node: nodes.table) -> None:
        self.body.append('<div class="wide">')
        super().visit_table(node)

    def depart_table(self, node: nodes.table) -> None:
        super().depart_table(node)
        self.body.append("</div>")


def setup(app: Sphinx) -> None:
    app.add_transform(LinksToSources)
    app.set_translator("html", Translator, override=True)
    app.connect("autodoc-process-docstring", _end_code)
    app.connect("autodoc-process-signature", _without_constructor)
    app.connect("env-updated", _check_pages)
    app.connect("html-page-context", _add_context)
    app.connect("build-finished", _copy_sources)


def _end_code(_app: Sphinx, _what: str, _name: str, _made: object, _options: object, lines: list[str]) -> None:
    """Lets a letter follow code, as in Markdown: `LogLine`s."""
    lines[:] = [_CODE.sub(r"\1\\ ", line) for line in lines]


def _without_constructor(
    _app: Sphinx, what: str, _name: str, made: object, _options: object, signature: str, returns: str
) -> tuple[str, str] | None:
    """Leaves the parameters of a class out, but for the clients: nothing else is made by a user."""
    is_made = made in {torchyard.Client, torchyard.AsyncClient}
    return ("", returns) if what == "class" and not is_made else None


def _check_pages(app: Sphinx, env: BuildEnvironment) -> None:
    """Raises ExtensionError if a page is nowhere beside the text."""
    listed = {page for top in PAGES for page in (top, *_pages_below(env, top))}
    if missing := env.found_docs - listed - {app.config.root_doc}:
        raise ExtensionError(f"these pages are not in PAGES of docs/site/conf.py: {', '.join(sorted(missing))}")


def _pages_below(env: BuildEnvironment, top: str) -> list[str]:
    """Returns the other pages of the folder whose README is `top`, in the order in which it links to them."""
    folder, _, name = top.rpartition("/")
    if name != "README" or top not in env.found_docs:
        return []
    linked = [link["reftarget"] for link in env.get_doctree(top).findall(addnodes.pending_xref)]
    return [page for page in dict.fromkeys(linked) if page.startswith(f"{folder}/") and page in env.found_docs]


def _add_context(app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: nodes.document) -> None:
    env = app.env
    folder = page.rpartition("/")[0]
    context["sidebar"] = [
        (
            env.titles[top].astext(),
            top,
            [(env.titles[name].astext(), name) for name in _pages_below(env, top)]
            if folder and top == f"{folder}/README"
            else [],
        )
        for top in PAGES
        if top in env.found_docs
    ]
    context["for_developers"] = FOR_DEVELOPERS


def _copy_sources(app: Sphinx, error: Exception | None) -> None:
    if error is None:
        for name in sorted(LINKED):
            target = Path(app.outdir) / "source" / f"{name}.txt"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)
