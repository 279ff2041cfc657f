"""Packing with a real git: what it ignores stays at home."""

import json
import os
from pathlib import Path
import subprocess

import pytest

from tests.approved import Approved
from torchyard.client.packing import git
from torchyard.client.packing.bundle import pack
from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes.script import Git


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of this machine's user, and no repository around the test."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "A")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@example.com")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with tracked, untracked, ignored and deleted files."""
    folder = tmp_path / "code"
    _write(folder, "train.py", "lib/a.py", "lib/gone.py", "odd name .py", ".gitignore")
    (folder / ".gitignore").write_text("*.log\n/data/\n.env\n")
    _git(folder, "init", "--quiet", "--initial-branch", "main")
    _git(folder, "add", ".")
    _git(folder, "commit", "--quiet", "--message", "first")
    (folder / "lib" / "gone.py").unlink()
    _write(folder, "new.py", "run.log", "data/x", "lib/.env", "lib/deep/new.txt")
    return folder


def test_tracked_and_new_files_are_packed_and_ignored_and_deleted_ones_are_not(repository: Path) -> None:
    assert _packed(repository) == (".gitignore", "lib/a.py", "lib/deep/new.txt", "new.py", "odd name .py", "train.py")


def test_a_folder_of_the_repository_is_packed_alone(repository: Path) -> None:
    assert _packed(repository / "lib") == ("a.py", "deep/new.txt")


def test_a_folder_that_the_repository_ignores_is_packed_whole(repository: Path) -> None:
    assert _packed(repository / "data") == ("x",)


def test_own_rules_are_added_to_those_of_git(repository: Path) -> None:
    (repository / ".torchyardignore").write_text("lib/deep\n!run.log\n.*\n")
    assert _packed(repository) == ("lib/a.py", "new.py", "odd name .py", "run.log", "train.py")


def test_what_is_never_code_is_not_packed_even_if_git_tracks_it(repository: Path) -> None:
    _write(repository, "lib/__pycache__/a.pyc", "node_modules/x.js")
    _git(repository, "add", "--force", ".")
    assert not [name for name in _packed(repository) if "__pycache__" in name or "node_modules" in name]


def test_a_file_with_passwords_is_left_out_even_if_git_tracks_it(repository: Path) -> None:
    (repository / "lib" / ".env").write_text("PASSWORD=first\n")
    _git(repository, "add", "--force", "lib/.env")
    _git(repository, "commit", "--quiet", "--message", "second")
    (repository / "lib" / ".env").write_text("PASSWORD=second\n")
    with pack(repository) as packed:
        assert "lib/.env" in packed.skipped
        found = git.origin(repository, packed.files)
    assert found is not None
    assert "PASSWORD" not in found.diff
    (repository / ".torchyardignore").write_text("!.env\n")
    assert "lib/.env" in _packed(repository)


def test_a_tracked_link_that_leads_outside_is_an_error_and_an_untracked_one_is_told(
    repository: Path, approved: Approved
) -> None:
    (repository / "outside").symlink_to("/etc/hostname")
    with pack(repository) as packed:
        assert [*packed.skipped] == ["lib/.env", "outside"]
    _git(repository, "add", "outside")
    with pytest.raises(ConfigError) as raised:
        pack(repository)
    assert str(raised.value) == approved("message")
    (repository / ".torchyardignore").write_text("outside\n")
    assert "outside" not in _packed(repository)


def test_what_took_the_place_of_a_tracked_folder_is_not_followed(
    repository: Path, tmp_path: Path, approved: Approved
) -> None:
    _write(repository.parent / "private", "a.py", "gone.py")
    (repository / "lib").rename(repository.parent / "lib")
    (repository / "lib").symlink_to("../private")
    with pytest.raises(ConfigError) as raised:
        pack(repository)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)
    (repository / "lib").unlink()
    (repository / "lib").write_text("a file")
    assert [name for name in _packed(repository) if name.startswith("lib")] == ["lib"]


def test_repositories_inside_are_packed_by_their_own_rules(repository: Path, approved: Approved) -> None:
    inner = repository / "inner"
    _write(inner, "b.py", "secret.key", ".gitignore")
    (inner / ".gitignore").write_text("*.key\n")
    _git(inner, "init", "--quiet")
    assert {name for name in _packed(repository) if name.startswith("inner")} == {"inner/.gitignore", "inner/b.py"}
    _git(inner, "add", ".")
    _git(inner, "commit", "--quiet", "--message", "inner")
    _git(repository, "add", "inner")  # tracked as a submodule is
    assert "inner/b.py" in _packed(repository) and "inner/secret.key" not in _packed(repository)
    _git(repository, "commit", "--quiet", "--message", "second")
    _git(repository.parent, "clone", "--quiet", str(repository), "clone")
    with pack(repository.parent / "clone") as packed:
        assert packed.skipped == {"inner": approved("inner")}


def test_a_repository_that_git_cannot_read_is_an_error(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ConfigError, match="install git"):
        pack(repository / "lib")
    monkeypatch.undo()
    (repository / ".git" / "config").write_text("[broken")
    with pytest.raises(ConfigError, match="git cannot read"):
        pack(repository)


def test_without_git_a_folder_without_a_repository_is_packed_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path / "plain", "a.py", ".config")
    assert _packed(tmp_path / "plain") == (".config", "a.py")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert _packed(tmp_path / "plain") == (".config", "a.py")
    assert git.origin(tmp_path / "plain", ["a.py"]) is None


def test_the_variables_of_a_hook_do_not_name_the_repository(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _packed(repository)
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nonexistent")
    assert _packed(repository) == expected


def test_the_origin_is_the_commit_the_branch_and_the_changes(repository: Path) -> None:
    commit = _git(repository, "rev-parse", "HEAD")
    (repository / "train.py").write_text("other\n")
    found = _origin(repository)
    assert (found.commit, found.branch, found.dirty) == (commit, "main", True)
    assert "-train.py" in found.diff and "+other" in found.diff
    _git(repository, "add", ".")
    _git(repository, "commit", "--quiet", "--message", "second")
    _git(repository, "checkout", "--quiet", "--detach")
    found = _origin(repository)
    assert (found.commit, found.branch) == (_git(repository, "rev-parse", "HEAD"), None)
    assert (found.dirty, found.diff) == (False, "")
    _git(repository, "checkout", "--quiet", "--orphan", "empty")
    assert git.origin(repository, ["train.py"]) is None


def test_the_diff_tells_nothing_of_what_is_not_packed(repository: Path) -> None:
    (repository / ".torchyardignore").write_text("lib/a.py\n")
    (repository / "lib" / "a.py").write_text("private = 1\n")
    (repository / "odd name .py").write_text("public = 1\n")
    found = _origin(repository)
    assert "private" not in found.diff and "a/lib/a.py" not in found.diff
    assert "+public = 1" in found.diff
    assert "deleted file" in found.diff and "-lib/gone.py" not in found.diff.splitlines()


def test_new_files_that_are_packed_are_in_the_diff_after_the_changes(repository: Path) -> None:
    (repository / "a_new.py").write_text("fresh = 1\n")
    (repository / "train.py").write_text("other\n")
    before = sorted((repository / ".git").rglob("*"))
    found = _origin(repository)
    assert "new file mode" in found.diff and "+fresh = 1" in found.diff
    assert found.diff.index("+other") < found.diff.index("+fresh = 1")
    assert _git(repository, "status", "--porcelain", "a_new.py") == "?? a_new.py"
    assert sorted((repository / ".git").rglob("*")) == before
    (repository / ".torchyardignore").write_text("a_new.py\n")
    assert "fresh" not in _origin(repository).diff


def test_a_file_that_left_the_index_alone_is_told_as_it_runs(repository: Path) -> None:
    _git(repository, "rm", "--quiet", "--cached", "train.py", "lib/a.py")
    (repository / "train.py").write_text("other\n")
    found = _origin(repository).diff
    assert "+other" in found and "-train.py" in found and "deleted file" not in found.split("gone.py")[0]
    assert "lib/a.py" not in found
    (repository / ".gitignore").write_text((repository / ".gitignore").read_text() + "train.py\n")
    assert "deleted file mode 100644\nindex" in _origin(repository).diff.split("b/train.py")[1]


def test_a_submodule_is_told_from_the_commit_that_the_repository_names(repository: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    _write(theirs, "a.py")
    _git(theirs, "init", "--quiet")
    _git(theirs, "add", ".")
    _git(theirs, "commit", "--quiet", "--message", "theirs")
    _git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(theirs), "sub")
    _git(repository, "commit", "--quiet", "--message", "with it")
    sub = repository / "sub"
    (sub / "a.py").write_text("ahead\n")
    _git(sub, "commit", "--quiet", "--all", "--message", "ahead")
    (sub / "a.py").write_text("ahead, and changed\n")
    (sub / "b.py").write_text("new\n")
    found = _origin(repository).diff
    assert "Subproject commit" in found
    assert "--- a/sub/a.py" in found and "+ahead, and changed" in found and "+new" in found


def test_the_diff_of_a_folder_is_one_of_its_own_files(repository: Path) -> None:
    (repository / "train.py").write_text("other\n")
    (repository / "lib" / "a.py").write_text("mine\n")
    assert "+mine" in _origin(repository / "lib").diff and "+other" not in _origin(repository / "lib").diff


def test_a_long_diff_is_cut_off_and_a_binary_one_is_only_named(repository: Path) -> None:
    (repository / "train.py").write_text("é\x01\n" * 100_000)
    (repository / "lib" / "a.py").write_bytes(bytes(1000))
    found = _origin(repository)
    assert 60_000 < len(found.diff.encode()) <= 65_536
    assert found.diff.endswith("(the diff is longer)\n") and "\x01" not in found.diff
    assert "Binary files a/lib/a.py and b/lib/a.py differ" in found.diff
    assert len(json.dumps(found.model_dump())) < 200_000


def test_no_program_of_the_users_settings_makes_the_diff(repository: Path, tmp_path: Path) -> None:
    program = tmp_path / "differ"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    _git(repository, "config", "diff.external", str(program))
    (repository / "train.py").write_text("other\n")
    assert "+other" in _origin(repository).diff
    assert not (tmp_path / "ran").exists()


def _origin(folder: Path) -> Git:
    with pack(folder) as bundle:
        found = git.origin(folder, bundle.files)
    assert found is not None
    return found


def _write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("key", ["clean", "process"])
def test_a_filter_that_the_folder_configures_is_not_run(repository: Path, key: str, tmp_path: Path) -> None:
    ran = _configure_filter(repository, tmp_path, f"filter.x.{key}")
    found = git.origin(repository, {"train.py"})
    assert found is not None and found.dirty and "changed" in found.diff
    assert not ran.exists()


def test_a_filter_of_the_user_is_run(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = _configure_filter(repository, tmp_path, "filter.other.clean")
    settings = tmp_path / "gitconfig"
    settings.write_text(f'[filter "x"]\n\tclean = touch {ran}; cat\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    git.origin(repository, {"train.py"})
    assert ran.exists()


def test_a_filter_whose_name_git_cannot_be_told_is_refused(repository: Path, tmp_path: Path) -> None:
    ran = _configure_filter(repository, tmp_path, "filter.x=y.clean", name="x=y")
    with pytest.raises(ConfigError, match="rename it"):
        git.origin(repository, {"train.py"})
    assert not ran.exists()


def test_a_filter_that_a_submodule_configures_is_not_run(repository: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    _write(theirs, "a.py")
    _git(theirs, "init", "--quiet")
    _git(theirs, "add", ".")
    _git(theirs, "commit", "--quiet", "--message", "theirs")
    for inside in (repository, repository / "sub"):
        _git(inside, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(theirs), "sub")
    inner = repository / "sub" / "sub"
    ran = _configure_filter(inner, tmp_path, "filter.x.clean", changed="a.py")
    _write(inner, "a.py")  # what git knows, so that it reads the file again
    os.utime(inner / "a.py", (1, 1))
    assert git.origin(repository, {"train.py"}) is not None
    assert not ran.exists()


def test_an_object_that_is_not_there_is_not_fetched_by_a_program_of_the_folder(
    repository: Path, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    absent = _git(repository, "rev-parse", "HEAD:train.py")
    (repository / ".git" / "objects" / absent[:2] / absent[2:]).unlink()
    (repository / "train.py").write_text("changed\n")
    for name, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": str(repository),
        "remote.origin.uploadpack": f"touch {ran}; git-upload-pack",
    }.items():
        _git(repository, "config", name, value)
    found = git.origin(repository, {"train.py"})
    assert found is not None and found.dirty
    assert not ran.exists()


def test_a_repository_among_the_files_of_a_clone_is_not_used(repository: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    inside = repository / "lib"
    _git(inside, "init", "--quiet", "--bare", "own.git")
    for path in (inside / "own.git").iterdir():
        path.rename(inside / path.name)
    _git(inside, "config", "--file", "config", "core.bare", "false")
    _git(inside, "config", "--file", "config", "core.worktree", str(inside))
    _git(inside, "add", "a.py")
    _git(inside, "commit", "--quiet", "--message", "theirs")
    _configure_filter(inside, tmp_path, "filter.x.clean", config=("--file", "config"), changed="a.py")
    with pytest.raises(ConfigError, match="bare repository"):
        pack(inside)
    assert git.origin(inside, {"a.py"}) is None
    assert not ran.exists()


def _packed(folder: Path) -> tuple[str, ...]:
    with pack(folder) as packed:
        return (*packed.files,)


def _configure_filter(
    folder: Path,
    tmp_path: Path,
    key: str,
    *,
    name: str = "x",
    config: tuple[str, ...] = ("--local",),
    changed: str = "train.py",
) -> Path:
    """Has git run a program to look at a file that changed. Returns the file that the program makes."""
    ran = tmp_path / "ran"
    _git(folder, "config", *config, key, f"touch {ran}; cat")
    (folder / ".gitattributes").write_text(f"* filter={name}\n")
    (folder / changed).write_text("changed\n")
    return ran
