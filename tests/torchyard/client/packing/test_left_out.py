"""What git ignores is told with its size, packed if that is asked for, and never left out of data."""

import os
from pathlib import Path
import subprocess

import pytest

from tests.approved import Approved
from torchyard.client.packing import leftout
from torchyard.client.packing.bundle import pack
from torchyard.contract.bounds import MOST_LEFT_OUT
from torchyard.contract.errors import ConfigError


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of this machine's user, and no repository around the test."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose data git ignores: a folder, and files beside ones that it tracks."""
    folder = tmp_path / "code"
    _write(folder, "train.py", "data/words/prepare.py")
    (folder / ".gitignore").write_text("*.bin\n*.pkl\n/raw/\n/.env\n__pycache__/\n.cache/\n")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    subprocess.run(["git", "add", "."], cwd=folder, check=True)
    _write(folder, "data/words/train.bin", "data/words/val.bin", "data/words/meta.pkl", "raw/a/1.npz", "raw/2.npz")
    return folder


def test_what_git_ignores_is_told_by_its_folder_with_files_and_bytes(repository: Path) -> None:
    _write(repository, "data/words/__pycache__/x.pyc", ".cache/big", "tool/pyvenv.cfg", "kept/CACHEDIR.TAG", "one.bin")
    (repository / ".gitignore").write_text("*.bin\n*.pkl\n/raw/\n__pycache__/\n.cache/\n/tool/\n/kept/\n")
    with pack(repository) as packed:
        assert [*packed.files] == [".gitignore", "data/words/prepare.py", "train.py"]
        assert [str(each) for each in packed.left_out] == [
            f"data/words/ (3 files, {len('data/words/train.bindata/words/val.bindata/words/meta.pkl')} B)",
            f"one.bin (1 file, {len('one.bin')} B)",
            f"raw/ (2 files, {len('raw/a/1.npzraw/2.npz')} B)",
        ]
        assert {each.by for each in packed.left_out} == {".gitignore"}
        assert [*packed.missed] == [
            *("data/words/meta.pkl", "data/words/train.bin", "data/words/val.bin"),
            *("one.bin", "raw/"),
        ]


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        (["data/words"], ["data/words/meta.pkl", "data/words/train.bin", "data/words/val.bin"]),
        (["./data/words/train.bin"], ["data/words/train.bin"]),
        (["*.bin", "raw/"], ["data/words/train.bin", "data/words/val.bin", "raw/2.npz", "raw/a/1.npz"]),
        (["."], None),
    ],
)
def test_what_is_included_is_packed(repository: Path, include: list[str], expected: list[str] | None) -> None:
    always = {".gitignore", "data/words/prepare.py", "train.py"}
    every = {path.relative_to(repository).as_posix() for path in repository.rglob("*") if path.is_file()}
    with pack(repository, include=include) as packed:
        wanted = {name for name in every if not name.startswith(".git/")} if expected is None else always | {*expected}
        assert {*packed.files} == wanted
        assert sum(each.files for each in packed.left_out) == 8 - len(wanted)


def test_a_path_is_no_pattern_and_goes_before_the_folders_own_rules(repository: Path) -> None:
    _write(repository, "a[1] #x/f.bin", "a1 #x/f.bin", "!odd.bin")
    (repository / ".torchyardignore").write_text("*.bin\n")
    with pack(repository, include=["a[1] #x", "!odd.bin"]) as packed:
        assert [name for name in packed.files if name.endswith(".bin")] == ["!odd.bin", "a[1] #x/f.bin"]


def test_lines_of_the_folders_own_file_bring_back_what_git_ignores(repository: Path) -> None:
    (repository / ".torchyardignore").write_text("!*.bin\n/data/words/val.bin\n!/raw/\n")
    _write(repository, "raw/.env")
    with pack(repository) as packed:
        assert {"data/words/train.bin", "raw/2.npz", "raw/a/1.npz"} <= {*packed.files}
        assert {"data/words/val.bin", "data/words/meta.pkl", "raw/.env"}.isdisjoint(packed.files)
        assert [*packed.skipped] == ["raw/.env"]
        assert [(each.path, each.by) for each in packed.left_out] == [
            ("data/words/meta.pkl", ".gitignore"),
            ("data/words/val.bin", ".torchyardignore"),
        ]


def test_what_cannot_be_included_is_refused_with_the_reason(
    repository: Path, tmp_path: Path, approved: Approved
) -> None:
    _write(repository, ".env", "__pycache__/x.pyc")
    _write(tmp_path, "far/x.npz")
    (repository / "far.bin").symlink_to(tmp_path / "far")
    for text, key in (("dta", "absent"), (".env", "private"), ("__pycache__", "never"), ("far.bin", "link")):
        with pytest.raises(ConfigError) as raised:
            pack(repository, include=[text])
        assert str(raised.value) == approved(key, tmp_path=tmp_path)
    with pytest.raises(ConfigError) as raised:
        pack(repository, include=["../far"])
    assert str(raised.value) == approved("outside", tmp_path=tmp_path)


def test_links_to_data_elsewhere_are_told_though_git_ignores_them(repository: Path, tmp_path: Path) -> None:
    _write(tmp_path, "far/x.npz")
    (repository / "raw.bin").symlink_to(tmp_path / "far")
    with pack(repository) as packed:
        assert packed.skipped == {"raw.bin": f"it is a link to {tmp_path / 'far'}, outside the folder"}
        assert "raw.bin" in packed.missed


def test_a_folder_of_very_many_files_is_not_counted_to_its_end(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftout, "MOST_COUNTED", 4)
    with pack(repository) as packed:
        assert [(each.path, each.files, each.is_more) for each in packed.left_out] == [
            ("data/words/", 3, False),
            ("raw/", 1, True),
        ]
        assert str(packed.left_out[1]).startswith("raw/ (more than 1 file, ")


def test_one_folder_of_very_many_files_keeps_no_other_from_being_counted(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftout, "MOST_OF_ONE", 1)
    _write(repository, "z.bin")
    with pack(repository) as packed:
        assert {each.path: (each.files, each.is_more) for each in packed.left_out} == {
            "data/words/": (3, False),
            "raw/": (1, True),
            "z.bin": (1, False),
        }
    monkeypatch.setattr(leftout, "MOST_COUNTED", 0)
    with pack(repository) as packed:
        assert [str(each) for each in packed.left_out] == [
            "data/words/ (not counted)",
            "raw/ (not counted)",
            "z.bin (not counted)",
        ]


def test_a_name_that_is_no_utf_8_may_be_left_out(repository: Path) -> None:
    _write(repository, "odd/" + os.fsdecode(b"\xff\n.bin"), "z.bin")
    (repository / ".torchyardignore").write_text("!z.bin\n")
    with pack(repository, include=["raw"]) as packed:
        assert "z.bin" in packed.files and "raw/2.npz" in packed.files
        assert "odd/" in [each.path for each in packed.left_out]


def test_of_many_paths_the_folders_are_kept(repository: Path) -> None:
    _write(repository, *(f"data/words/{number}.bin" for number in range(MOST_LEFT_OUT)))
    with pack(repository) as packed:
        assert [*packed.missed] == ["data/words/", "raw/"]


def test_data_is_packed_whole_whatever_git_ignores(repository: Path) -> None:
    _write(repository, ".env", "raw/.git/HEAD", "raw/__pycache__/x.pyc")
    (repository / ".torchyardignore").write_text("*.pkl\n")
    with pack(repository, asks_git=False) as packed:
        assert {"data/words/train.bin", "data/words/val.bin", "raw/2.npz", "raw/a/1.npz"} <= {*packed.files}
        assert [(each.path, each.by) for each in packed.left_out] == [
            (".git/", "never packed"),
            ("data/words/meta.pkl", ".torchyardignore"),
            ("raw/", "never packed"),
        ]
        assert [*packed.skipped] == [".env"]


def test_a_folder_without_a_file_is_refused_where_data_is_packed(tmp_path: Path, approved: Approved) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError) as raised:
        pack(tmp_path / "empty", asks_git=False)
    assert str(raised.value) == approved("empty", tmp_path=tmp_path)
    _write(tmp_path / "empty", ".env", ".git/HEAD")
    with pytest.raises(ConfigError) as raised:
        pack(tmp_path / "empty", asks_git=False)
    assert str(raised.value) == approved("left out", tmp_path=tmp_path)


def _write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.fsencode(name))
