"""The cases of uploads that the command line shares with the page: web/src/bundles/cases.test.ts reads them, too."""

from collections.abc import Mapping
import json
from pathlib import Path
import subprocess
from typing import Any, TypeAlias

import pytest

from torchyard.client.packing.bundle import Bundle, pack
from torchyard.contract.bundles.names import MAX_BUNDLE_BYTES
from torchyard.contract.errors import ConfigError, InvalidBundle, TooLarge

Case: TypeAlias = Mapping[str, Any]
CASES: Mapping[str, Mapping[str, Case]] = json.loads((Path(__file__).parents[3] / "upload_cases.json").read_text())


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of this machine's user, and no repository around the test."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))


def test_a_folder_is_packed_as_the_page_packs_it(tmp_path: Path) -> None:
    for number, (name, case) in enumerate(CASES["packed"].items()):
        with _pack(tmp_path / str(number), case) as packed:
            left_out = [[each.path, each.by, each.files, each.size] for each in packed.left_out]
            assert [*packed.files] == case["packed"], name
            assert left_out == case["left_out"], name
            assert [*packed.skipped] == case.get("skipped", []), name
            assert (packed.size, packed.sha256) == (case["size"], case["sha256"]), name


def test_a_folder_is_refused_as_the_page_refuses_it(tmp_path: Path) -> None:
    for number, (name, case) in enumerate(CASES["refused"].items()):
        with pytest.raises((ConfigError, InvalidBundle, TooLarge)):
            _pack(tmp_path / str(number), case)
            pytest.fail(name)


def test_what_a_browser_cannot_know_is_packed_otherwise(tmp_path: Path) -> None:
    for number, (name, case) in enumerate(CASES["differs"].items()):
        with _pack(tmp_path / str(number), case) as packed:
            found = {"packed": [*packed.files], "sha256": packed.sha256}
            assert found == case["command_line"] != case["page"], name


def _pack(folder: Path, case: Case) -> Bundle:
    """Writes the files of a case, and packs them."""
    folder.mkdir()
    for name in case.get("empty_folders", ()):
        (folder / name).mkdir(parents=True)
    for name, text in case["files"].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        path.chmod(0o755 if name in case.get("executable", ()) else 0o644)
    for name, size in case.get("zeros", {}).items():
        with (folder / name).open("wb") as file:
            file.truncate(size)
    for name in case.get("repositories", ()):
        subprocess.run(["git", "init", "--quiet", "--template=", folder / name], check=True)
        (folder / name / ".git/info").mkdir()
        (folder / name / ".git/info/exclude").write_text(case.get("exclude", {}).get(name, ""))
    if tracked := case.get("tracked"):
        subprocess.run(["git", "add", "--force", *tracked], cwd=folder, check=True)
    return pack(folder, asks_git=case["kind"] == "code", max_size=MAX_BUNDLE_BYTES)
