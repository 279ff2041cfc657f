"""The packages of the page are locked by their content, and by no registry's address."""

import json
from pathlib import Path
import re
from typing import Any

WEB = Path(__file__).parents[1] / "web"
LOCK = WEB / "package-lock.json"
# The package of `from "package/part"`, `import("package")` and `@import "package"`: no relative path, nothing of Node.
_IMPORT = re.compile(r"""(?:\bfrom|\bimport)\s*\(?\s*["'](?!node:)(@[\w.-]+/[\w.-]+|\w[\w.-]*)""")


def test_the_lock_names_no_address() -> None:
    assert '"resolved": "http' not in LOCK.read_text()


def test_each_package_is_locked_by_its_hash() -> None:
    packages: dict[str, Any] = json.loads(LOCK.read_text())["packages"]
    assert packages
    assert [name for name, package in packages.items() if name and not package.get("integrity")] == []


def test_the_page_is_built_without_what_tests_it() -> None:
    package: dict[str, dict[str, str]] = json.loads((WEB / "package.json").read_text())
    sources = [WEB / "vite.config.ts", WEB / "svelte.config.js", *(WEB / "src").rglob("*.*")]
    imported = {
        name
        for source in sources
        if source.suffix in {".ts", ".js", ".svelte", ".css"} and not source.name.endswith((".test.ts", "testing.ts"))
        for name in _IMPORT.findall(source.read_text())
    }
    assert {"svelte", "vite", "uplot"} <= imported
    assert imported <= package["dependencies"].keys()
    assert not package["dependencies"].keys() & package["devDependencies"].keys()
