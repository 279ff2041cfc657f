"""The packages of the page are locked by their content, and by no registry's address."""

import json
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[1] / "web/package-lock.json"


def test_the_lock_names_no_address() -> None:
    assert '"resolved": "http' not in LOCK.read_text()


def test_each_package_is_locked_by_its_hash() -> None:
    packages: dict[str, Any] = json.loads(LOCK.read_text())["packages"]
    assert packages
    assert [name for name, package in packages.items() if name and not package.get("integrity")] == []
