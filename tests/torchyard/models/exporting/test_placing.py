"""Where an export is written: whole or not at all, and over nothing of the user's."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.approved import Approved
from tests.disks import mounted
from torchyard.contract.errors import ExportError
from torchyard.models.exporting import placing
from torchyard.models.exporting.placing import Content

FOLDER = {"config.json": b"{}", "model.safetensors": b"new"}
CONTENTS: list[bytes | Mapping[str, bytes]] = [b"new", FOLDER]


def place(path: Path, content: Content, *, force: bool, check: Callable[[Path], None]) -> None:
    names = FOLDER if isinstance(content, Mapping) else None
    placing.place(path, content, names=names, force=force, check=check)


def nothing(_: Path) -> None:
    """Checks nothing."""


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def found(path: Path) -> bytes | dict[str, bytes]:
    return {item.name: item.read_bytes() for item in path.iterdir()} if path.is_dir() else path.read_bytes()


@pytest.mark.parametrize("content", CONTENTS)
def test_it_is_checked_before_it_has_its_name(tmp_path: Path, content: bytes | Mapping[str, bytes]) -> None:
    seen: list[object] = []

    def check(aside: Path) -> None:
        seen.append(found(aside))
        assert not (tmp_path / "it").exists()

    place(tmp_path / "it", content, force=False, check=check)
    assert [found(tmp_path / "it")] == seen == [content]
    assert names(tmp_path) == ["it"]


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("force", [False, True])
def test_nothing_is_left_or_changed_if_the_check_fails(
    tmp_path: Path, content: bytes | Mapping[str, bytes], force: bool
) -> None:
    if force:
        place(tmp_path / "it", content, force=False, check=nothing)
    where = tmp_path / "it" if force else tmp_path
    before = found(where)

    def check(aside: Path) -> None:
        raise ExportError(f"{aside.name} is wrong")

    with pytest.raises(ExportError, match="is wrong"):
        place(tmp_path / "it", content, force=force, check=check)
    assert found(where) == before
    assert names(tmp_path) == ["it"] * force


@pytest.mark.parametrize("content", CONTENTS)
def test_what_is_there_is_replaced_only_by_force(
    tmp_path: Path, content: bytes | Mapping[str, bytes], approved: Approved
) -> None:
    path = tmp_path / "it"
    older = b"old" if isinstance(content, bytes) else dict.fromkeys(content, b"old")
    place(path, older, force=False, check=nothing)
    with pytest.raises(ExportError) as raised:
        place(path, content, force=False, check=nothing)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)
    assert found(path) == older
    place(path, content, force=True, check=nothing)
    assert found(path) == content
    assert names(tmp_path) == ["it"]


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    def overtake(_: Path) -> None:
        (tmp_path / "it").write_bytes(b"other")

    with pytest.raises(ExportError, match="exists"):
        place(tmp_path / "it", b"new", force=False, check=overtake)
    assert found(tmp_path) == {"it": b"other"}


def test_a_folder_with_files_of_the_user_is_never_replaced(tmp_path: Path, approved: Approved) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_bytes(b"mine")
    (tmp_path / "mine" / "config.json").write_bytes(b"mine")
    (tmp_path / "link").symlink_to("mine")
    for name, message in (("mine", "has other files, such as thesis.tex"), ("link", "is a file: name a folder")):
        with pytest.raises(ExportError, match=message):
            place(tmp_path / name, FOLDER, force=True, check=nothing)
    with pytest.raises(ExportError) as raised:
        place(tmp_path / "mine", b"new", force=True, check=nothing)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)
    assert found(tmp_path / "mine") == {"thesis.tex": b"mine", "config.json": b"mine"}


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "it").symlink_to("mine")
    place(tmp_path / "it", b"new", force=True, check=nothing)
    assert found(tmp_path) == {"mine": b"mine", "it": b"new"}


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, approved: Approved) -> None:
    with pytest.raises(ExportError) as raised:
        place(tmp_path / "absent" / "it", b"new", force=False, check=nothing)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


@pytest.mark.parametrize("content", [bytes(1 << 20), {"config.json": b"{}", "model.safetensors": bytes(1 << 20)}])
def test_a_full_disk_leaves_nothing_and_is_named(
    tmp_path: Path, content: bytes | Mapping[str, bytes], approved: Approved
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted(disk, kibibytes=256):
        with pytest.raises(OSError) as raised:
            place(disk / "it", content, force=False, check=nothing)
        assert str(raised.value) == approved("message", tmp_path=tmp_path)
        assert names(disk) == []


@pytest.mark.parametrize("content", CONTENTS)
def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path, content: bytes | Mapping[str, bytes]) -> None:
    # /proc takes no file, of root either.
    with pytest.raises(OSError, match=r"/proc/self"):
        place(Path("/proc/self/it"), content, force=False, check=nothing)
