"""A look into folders that a job writes is bounded, and follows no link."""

from pathlib import Path

import pytest

from worker.host.looks import Entries, Looks, Parts, names_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Has two files in each of three folders in each other, and beside them a link to a folder with a file."""
    for folder in ("job", "job/a", "job/a/b"):
        (tmp_path / folder).mkdir()
        for name in ("2.pt", "1.pt"):
            (tmp_path / folder / name).touch()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "3.pt").touch()
    (tmp_path / "job" / "link").symlink_to(tmp_path / "outside")
    return tmp_path


def names(here: Entries) -> list[str]:
    return [match.parts[-1] for match in here.files]


def test_an_entry_is_a_file_a_folder_or_something_else(root: Path) -> None:
    here = Looks(root, most=100).entries(("job",))
    assert (names(here), here.folders, here.others) == (["1.pt", "2.pt"], ["a"], ["link"])
    assert here.files[0].parts == ("job", "1.pt")


def test_higher_folders_come_first_and_each_level_is_one_deeper(root: Path) -> None:
    found = [folder for folder, _ in Looks(root, most=100).below(("job",), ("outside",))]
    assert found == [("job",), ("outside",), ("job", "a"), ("job", "a", "b")]
    assert [folder for folder, _ in Looks(root, most=100).below(("job",), deepest=1)] == [("job",), ("job", "a")]


def test_a_folder_that_is_not_entered_is_left_out_with_all_below_it(root: Path) -> None:
    found = Looks(root, most=100).below(("job",), enters=lambda path: path[-1] != "a")
    assert [folder for folder, _ in found] == [("job",)]


@pytest.mark.parametrize(("most", "count"), [(5, 2), (6, 2), (9, 4), (100, 6)])
def test_after_its_limit_a_look_finds_nothing(root: Path, most: int, count: int) -> None:
    """A folder counts as an entry: `job` and what lies in it as five, `a` as four more."""
    looks = Looks(root, most=most)
    assert sum(len(here.files) for _, here in looks.below(("job",))) == count
    assert looks.is_cut == (most < 100)


def test_an_empty_folder_counts_too(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    looks = Looks(tmp_path, most=3)
    for _ in range(3):
        looks.entries(("empty",))
    assert not looks.is_cut
    looks.entries(("empty",))
    assert looks.is_cut


def test_a_link_is_not_followed_and_what_is_not_wanted_is_left_out(root: Path) -> None:
    assert Looks(root, most=100).entries(("job", "link")) == Entries([], [], [])
    here = Looks(root, most=100).entries(("job",), lambda entry: entry.name == "1.pt")
    assert (names(here), here.folders, here.others) == (["1.pt"], [], [])


def test_all_names_of_a_file_are_found(root: Path) -> None:
    (root / "job" / "a" / "best.pt").hardlink_to(root / "job" / "1.pt")
    status = (root / "job" / "1.pt").stat()
    inode = status.st_dev, status.st_ino
    expected: list[Parts] = [("job", "1.pt"), ("job", "a", "best.pt")]
    assert names_of(root, [("job",)], [inode]) == {inode: expected}
    assert names_of(root, [("outside",)], [inode]) == {inode: []}
