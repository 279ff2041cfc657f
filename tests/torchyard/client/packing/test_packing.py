"""The packer: the same files give the same bytes, and what is not a plain file is refused or named."""

from collections.abc import Mapping
import hashlib
import io
import os
from pathlib import Path
from random import Random
import socket
import tarfile

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from tests.approved import Approved
from tests.leftovers import as_nobody
from torchyard.client.packing import bundle, contents
from torchyard.client.packing.bundle import Bundle, pack
from torchyard.contract.bundles.tar import verify
from torchyard.contract.errors import ConfigError, InvalidBundle, TooLarge

Tree = Mapping[str, tuple[bytes, bool]]
"""Files by name: the contents, and whether the file can be executed."""

_PART = st.text("abcXYZ01._- éß漢", min_size=1, max_size=40).filter(lambda part: part.strip(".") == part)
_NAME = st.lists(_PART, min_size=1, max_size=5).map("/".join)


def _fits(names: list[str]) -> bool:
    """Whether a folder can have all of these files, whatever its file system."""
    parents = {"/".join(name.split("/")[:depth]) for name in names for depth in range(1, name.count("/") + 1)}
    every = [*names, *parents]
    return len({name.casefold() for name in every}) == len(every)


_NAMES = st.lists(_NAME, max_size=12, unique=True).filter(_fits)
_FILE = st.tuples(st.binary(max_size=2000), st.booleans())
_TREES = _NAMES.flatmap(lambda names: st.fixed_dictionaries(dict.fromkeys(names, _FILE)))


@settings(max_examples=25, deadline=None)
@given(tree=_TREES, random=st.randoms(use_true_random=False))
def test_a_tree_has_one_digest_whenever_and_however_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, tree: Tree, random: Random
) -> None:
    first, second = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    _write(first, tree, umask=0o022, mtime=1)
    _write(second, dict(random.sample([*tree.items()], len(tree))), umask=0o077, mtime=2_000_000_000)
    with pack(first) as one, pack(second) as other:
        assert one.sha256 == other.sha256
        tar = b"".join(one.read())
        assert tar == b"".join(other.read())
        assert (len(tar), hashlib.sha256(tar).hexdigest()) == (one.size, one.sha256)
        assert _read(one) == tree
        verified = verify(io.BytesIO(tar), needs_parts=True)
        assert verified.files == len(tree) == len(one.files)
        assert verified.parts == one.parts


def test_a_change_of_a_byte_a_name_or_a_mode_changes_the_digest(tmp_path: Path) -> None:
    trees: list[Tree] = [
        {"a": (b"1", False)},
        {"a": (b"2", False)},
        {"b": (b"1", False)},
        {"a": (b"1", True)},
        {},
    ]
    digests: set[str] = set()
    for number, tree in enumerate(trees):
        _write(tmp_path / str(number), tree)
        with pack(tmp_path / str(number)) as packed:
            digests.add(packed.sha256)
    assert len(digests) == len(trees)


def test_names_are_in_normal_form_as_another_system_may_spell_them_otherwise(
    tmp_path: Path, approved: Approved
) -> None:
    _write(tmp_path / "composed", {"\u00e9.py": (b"", False)})
    _write(tmp_path / "decomposed", {"e\u0301.py": (b"", False)})
    with pack(tmp_path / "composed") as one, pack(tmp_path / "decomposed") as other:
        assert one.sha256 == other.sha256 and one.files == ("\u00e9.py",)
    _write(tmp_path / "composed", {"e\u0301.py": (b"", False)})
    with pytest.raises(InvalidBundle) as raised:
        pack(tmp_path / "composed")
    assert str(raised.value) == approved("message")


@pytest.mark.parametrize(
    "names",
    [
        ["Data/a.txt", "data/A.txt"],
        ["Data/a.txt", "data/b.txt"],
        ["README", "readme/now"],
        ["A/b", "a"],
        ["a\nb"],
        [os.fsdecode(b"\xff.py")],
    ],
)
def test_names_that_not_every_machine_can_have_are_refused(
    tmp_path: Path, names: list[str], approved: Approved
) -> None:
    _write(tmp_path, dict.fromkeys(names, (b"", False)))
    with pytest.raises(InvalidBundle) as raised:
        pack(tmp_path)
    assert str(raised.value) == approved.of_row("message")


def test_what_is_never_code_is_not_packed(tmp_path: Path) -> None:
    hidden = [f"{top}/x" for top in (".git", ".venv", "node_modules", ".torchyard", "__pycache__", "a/__pycache__")]
    _write(tmp_path, dict.fromkeys([*hidden, "train.py", "a/.envs", "a/b.py"], (b"", False)))
    assert _packed(tmp_path) == ("a/.envs", "a/b.py", "train.py")


def test_files_with_passwords_are_left_out_and_told_unless_they_are_named(tmp_path: Path, approved: Approved) -> None:
    names = [
        ".env",
        ".env.production",
        "sub/.Env",
        "sub/.envrc",
        "venv/.env/lib/x.py",
        "venv/.env/y.py",
        "train.env",
        "a.py",
    ]
    _write(tmp_path, dict.fromkeys(names, (b"", False)))
    (tmp_path / "settings").symlink_to(".env")
    with pack(tmp_path) as packed:
        assert [*packed.files] == ["a.py", "train.env"]
        assert [*packed.skipped] == [".env", ".env.production", "settings", "sub/.Env", "sub/.envrc", "venv/.env"]
        assert packed.skipped[".env"] == approved("env")
        assert packed.skipped["settings"] == approved("settings")
    (tmp_path / ".torchyardignore").write_text("*.py\n!/.env\n")
    with pack(tmp_path) as packed:
        assert [*packed.files] == [".env", ".torchyardignore", "settings", "train.env"]
        assert [*packed.skipped] == [".env.production", "sub/.Env", "sub/.envrc"]
    with pytest.raises(ConfigError) as raised:
        pack(tmp_path, needed="sub/.envrc")
    assert str(raised.value) == approved("message")


def test_the_ignore_file_has_the_syntax_of_git(tmp_path: Path) -> None:
    names = ["train.py", "data/big.bin", "data/keep.txt", "logs/a.log", "sub/logs/b.log", "sub/data/c", "x.ckpt"]
    _write(tmp_path, dict.fromkeys(names, (b"", False)))
    (tmp_path / ".torchyardignore").write_text("# ours\n/data/*\n!/data/keep.txt\nlogs/\n*.ckpt\n")
    assert _packed(tmp_path) == (".torchyardignore", "data/keep.txt", "sub/data/c", "train.py")


def test_a_link_inside_the_folder_is_packed_as_what_it_points_to(tmp_path: Path) -> None:
    _write(tmp_path, {"real.py": (b"code", True), "lib/a.py": (b"a", False), "lib/in/b.py": (b"b", False)})
    (tmp_path / "linked.py").symlink_to("real.py")
    (tmp_path / "absolute.py").symlink_to(tmp_path / "real.py")
    (tmp_path / "again").symlink_to("lib")
    with pack(tmp_path) as packed:
        found = _read(packed)
    assert found["linked.py"] == found["absolute.py"] == found["real.py"] == (b"code", True)
    assert found["again/a.py"] == found["lib/a.py"] and found["again/in/b.py"] == found["lib/in/b.py"]
    assert len(found) == 7


def test_a_link_to_the_folder_around_it_is_packed_once(tmp_path: Path) -> None:
    _write(tmp_path, {"a/b.py": (b"", False)})
    (tmp_path / "a" / "up").symlink_to("..")
    assert _packed(tmp_path) == ("a/b.py", "a/up/a/b.py")


def test_what_is_no_file_of_the_folder_is_left_out_and_named(tmp_path: Path, approved: Approved) -> None:
    (tmp_path / "secret").write_text("private")
    folder = tmp_path / "folder"
    _write(folder, {"train.py": (b"", False), ".venv/x": (b"", False)})
    (folder / "outside").symlink_to("../secret")
    (folder / "outer").symlink_to("..")
    (folder / "nothing").symlink_to("absent")
    (folder / "loop").symlink_to("loop")
    (folder / "hidden").symlink_to(".venv/x")
    (folder / "zero").symlink_to("/dev/zero")
    os.mkfifo(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(folder / "socket"))
        with pack(folder) as packed:
            assert packed.files == ("train.py",)
            skipped = packed.skipped
    assert skipped.keys() == {"outside", "outer", "nothing", "loop", "hidden", "zero", "fifo", "socket"}
    assert skipped["outside"] == f"it is a link to {tmp_path / 'secret'}, outside the folder"
    assert skipped["nothing"] == approved("nothing")
    assert (skipped["fifo"], skipped["socket"]) == (approved("fifo"), approved("socket"))
    assert skipped["hidden"] == approved("hidden")


def test_a_file_or_folder_that_cannot_be_read_is_named() -> None:
    with as_nobody() as folder:
        _write(folder, {"a.py": (b"", False), "in/b.py": (b"", False)})
        for name in ("a.py", "in"):
            (folder / name).chmod(0)
            with pytest.raises(ConfigError, match=f"{name} cannot be read: Permission denied"):
                pack(folder)
            (folder / name).chmod(0o700)


@pytest.mark.parametrize("change", ["grows", "shrinks", "is written", "is replaced", "is removed", "becomes a FIFO"])
@pytest.mark.parametrize("moment", ["listed", "read"])
def test_a_file_that_changes_meanwhile_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, moment: str, approved: Approved
) -> None:
    _write(tmp_path, {"a.py": (b"before", False)}, mtime=1)
    step = {"listed": "_check_size", "read": "check_unchanged"}[moment]
    original = getattr(bundle, step)

    def changing(*arguments: object) -> None:
        _change(tmp_path / "a.py", change)
        original(*arguments)

    monkeypatch.setattr(bundle, step, changing)
    with pytest.raises(ConfigError) as raised:
        pack(tmp_path)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_too_much_is_refused_with_the_names_of_the_largest(tmp_path: Path) -> None:
    _write(tmp_path, {f"file{number}": (bytes(1000 + number), False) for number in range(12)})
    with pytest.raises(TooLarge) as refused:
        pack(tmp_path, max_size=12_000)
    lines = str(refused.value).splitlines()
    assert "in 12 files" in lines[0] and "--max-size" in lines[0] and ".torchyardignore" in lines[0]
    assert [line.split()[-1] for line in lines[1:]] == [f"file{number}" for number in range(11, 1, -1)]
    with pack(tmp_path, max_size=13_000) as packed:
        assert len(packed.files) == 12 and not packed.large


def test_a_large_file_is_told(tmp_path: Path) -> None:
    _write(tmp_path, {"a.py": (b"", False)})
    with (tmp_path / "data.bin").open("wb") as file:
        file.truncate((10 << 20) + 1)
    with pack(tmp_path) as packed:
        assert packed.large == {"data.bin": (10 << 20) + 1}


def test_a_program_that_would_not_be_there_is_told(tmp_path: Path, approved: Approved) -> None:
    _write(tmp_path, {"a.py": (b"", False), "ignored.py": (b"", False), ".venv/b.py": (b"", False)})
    (tmp_path / ".torchyardignore").write_text("ignored.py\n")
    (tmp_path / "linked.py").symlink_to("/dev/null")
    with pack(tmp_path, needed="a.py"):
        pass
    for name, said in (
        ("absent.py", "there is no absent.py in "),
        ("ignored.py", "ignored.py would not be in the bundle: git or .torchyardignore ignores it"),
        (".venv/b.py", ".venv/b.py would not be in the bundle"),
        ("linked.py", "outside the folder"),
    ):
        with pytest.raises(ConfigError, match=said):
            pack(tmp_path, needed=name)
    with pytest.raises(ConfigError) as raised:
        pack(tmp_path / "a.py")
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


@pytest.mark.parametrize("held", [contents.HELD_BYTES, 0])
def test_a_small_folder_is_sent_as_it_was_packed_and_a_change_of_a_large_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(contents, "HELD_BYTES", held)
    _write(tmp_path, {"a.py": (b"before", False), "b.py": (b"b" * 3000, True)}, mtime=1)
    with pack(tmp_path) as packed:
        tar = b"".join(packed.read())
        for start, end in ((0, 100), (500, 1100), (511, 513), (1024, 1537), (4000, packed.size), (5000, 5000)):
            assert b"".join(packed.read(start, end)) == tar[start:end]
        (tmp_path / "a.py").write_bytes(b"behind")
        if held:
            assert b"".join(packed.read()) == tar
        else:
            with pytest.raises(ConfigError, match=r"a\.py changed while it was packed"):
                b"".join(packed.read())


def _write(folder: Path, tree: Tree, *, umask: int = 0o022, mtime: int | None = None) -> None:
    before = os.umask(umask)
    try:
        for name, (content, executable) in tree.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod((0o777 if executable else 0o666) & ~umask)
            if mtime is not None:
                os.utime(path, (mtime, mtime))
        folder.mkdir(parents=True, exist_ok=True)
    finally:
        os.umask(before)


def _change(path: Path, change: str) -> None:
    if change in {"is removed", "is replaced", "becomes a FIFO"}:
        path.unlink()
    match change:
        case "grows":
            path.write_bytes(b"before and after")
        case "shrinks":
            path.write_bytes(b"")
        case "is written" | "is replaced":
            path.write_bytes(b"behind")
        case "becomes a FIFO":
            os.mkfifo(path)
        case _:
            pass


def _packed(folder: Path) -> tuple[str, ...]:
    with pack(folder) as packed:
        return (*packed.files,)


def _read(packed: Bundle) -> dict[str, tuple[bytes, bool]]:
    """The files of a bundle, as `tarfile` reads them."""
    with tarfile.open(fileobj=io.BytesIO(b"".join(packed.read()))) as tar:
        found: dict[str, tuple[bytes, bool]] = {}
        for member in tar:
            assert member.isreg() and member.mode in {0o644, 0o755} and member.mtime == member.uid == member.gid == 0
            content = tar.extractfile(member)
            assert content is not None
            found[member.name] = content.read(), member.mode == 0o755
        return found


def test_the_data_directory_of_a_service_is_left_out(tmp_path: Path) -> None:
    data = tmp_path / "state" / "torchyard"
    data.mkdir(parents=True)
    for name in ("children.lock", "token", "torchyard.db"):
        (data / name).write_text(name)
    (tmp_path / "train.py").write_text("print()\n")
    (tmp_path / "link").symlink_to(data / "token")
    (tmp_path / "children.lock").touch()
    with pack(tmp_path) as packed:
        assert sorted(packed.files) == ["children.lock", "train.py"]
        assert sorted(packed.skipped) == ["link", "state/torchyard"]
    with pytest.raises(ConfigError, match="name the folder of your program"):
        pack(data)
