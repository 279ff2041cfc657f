"""Which folders are one checkpoint each, and what of them is still to be written."""

import os
from pathlib import Path

import pytest

from worker.attempts.capture import folders, layouts
from worker.attempts.capture.folders import FolderMatch
from worker.attempts.files.matching import Search

DCP = ("__0_0.distcp", "__1_0.distcp", ".metadata")
TRAINER = (
    "config.json",
    "model.safetensors",
    "optimizer.pt",
    "rng_state.pth",
    "training_args.bin",
    "trainer_state.json",
)
ACCELERATE = ("model.safetensors", "optimizer.bin", "random_states_0.pkl")
DEEPSPEED = ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt")
PARTS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json")


def write(folder: Path, *names: str, content: str = "x") -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def found(root: Path, *patterns: str) -> dict[str, list[str] | None]:
    """Returns the paths of checkpoints, with their files if they are folders."""
    matches = folders.find(Search(root), ("work",), patterns)
    return {
        "/".join(match.parts[1:]): (
            sorted("/".join(file.parts[1:]) for file in match.files) if isinstance(match, FolderMatch) else None
        )
        for match in matches
    }


def below(folder: str, names: tuple[str, ...]) -> list[str]:
    return sorted(f"{folder}/{name}" for name in names)


@pytest.mark.parametrize("pattern", ["out/*", "out/*/*", "out/*/*.safetensors", "**/*", "out/checkpoint-*"])
def test_each_folder_of_the_trainer_is_one_checkpoint(tmp_path: Path, pattern: str) -> None:
    for step in (500, 1000):
        write(tmp_path / f"work/out/checkpoint-{step}", *TRAINER)
    write(tmp_path / "work/out/runs/Nov29", "events.out.tfevents.1") if pattern == "out/*" else None
    assert found(tmp_path, pattern) == {
        f"out/checkpoint-{step}": below(f"out/checkpoint-{step}", TRAINER) for step in (500, 1000)
    }


@pytest.mark.parametrize("files", [DCP, ACCELERATE, PARTS, ("config.json", "model.safetensors", "tokenizer.json")])
@pytest.mark.parametrize("pattern", ["out/*", "out/*/*", "out/*/", "out/step-10"])
def test_a_folder_of_a_known_layout_is_one_checkpoint(tmp_path: Path, files: tuple[str, ...], pattern: str) -> None:
    write(tmp_path / "work/out/step-10", *files)
    assert found(tmp_path, pattern) == {"out/step-10": below("out/step-10", files)}


def test_all_below_a_folder_belongs_to_it(tmp_path: Path) -> None:
    files = (
        "trainer_state.json",
        "global_step5/mp_rank_00_model_states.pt",
        "latest",
        "pytorch_model_fsdp_0/.metadata",
    )
    write(tmp_path / "work/out/checkpoint-5", *files)
    for pattern in ("out/*", "**/*.pt", "out/*/*/*"):
        assert found(tmp_path, pattern) == {"out/checkpoint-5": below("out/checkpoint-5", files)}


def test_a_last_model_is_a_checkpoint_beside_those_in_its_folder(tmp_path: Path) -> None:
    last = ("config.json", "model.safetensors", "training_args.bin", "1_Pooling/config.json")
    write(tmp_path / "work/out", *last)
    write(tmp_path / "work/out/checkpoint-5", *TRAINER)
    assert found(tmp_path, "out/*") == {
        "out": below("out", last),
        "out/checkpoint-5": below("out/checkpoint-5", TRAINER),
    }


def test_a_model_around_what_matches_is_no_checkpoint(tmp_path: Path) -> None:
    write(tmp_path / "work/base", "config.json", "model.safetensors", "out/a.pt")
    assert found(tmp_path, "base/out/*.pt") == {"base/out/a.pt": None}


def test_latest_of_deepspeed_goes_with_the_folder_that_it_names(tmp_path: Path) -> None:
    for step in (10, 20):
        write(tmp_path / f"work/out/global_step{step}", *DEEPSPEED)
    write(tmp_path / "work/out", "zero_to_fp32.py")
    write(tmp_path / "work/out", "latest", content="global_step20\n")
    expected = {
        "out/global_step10": below("out/global_step10", DEEPSPEED),
        "out/global_step20": sorted([*below("out/global_step20", DEEPSPEED), "out/latest"]),
    }
    assert found(tmp_path, "out/*") == found(tmp_path, "out/*/*.pt") == expected


@pytest.mark.parametrize("text", ["../../etc/passwd", "global_step9", "x" * 1000, "\0"])
def test_a_latest_that_names_nothing_beside_it_is_no_part_of_a_folder(tmp_path: Path, text: str) -> None:
    write(tmp_path / "work/out/global_step10", *DEEPSPEED)
    write(tmp_path / "work/out", "latest", content=text)
    assert found(tmp_path, "out/*") == {"out/global_step10": below("out/global_step10", DEEPSPEED)}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("out/*", {"out/a.pt": None}),
        ("out/mine", {"out/mine": ["out/mine/.hidden", "out/mine/x", "out/mine/y/z"]}),
        ("out/*/", {"out/mine": ["out/mine/.hidden", "out/mine/x", "out/mine/y/z"]}),
        ("out/*/x", {"out/mine/x": None}),
        ("out/*/*", {"out/mine/x": None}),
        ("nowhere/", {}),
        ("out/a.pt/", {}),
    ],
)
def test_a_folder_of_no_known_layout_is_one_checkpoint_where_it_is_named(
    tmp_path: Path, pattern: str, expected: dict[str, list[str] | None]
) -> None:
    write(tmp_path / "work/out", "a.pt", "mine/x", "mine/y/z", "mine/.hidden")
    assert found(tmp_path, pattern) == expected


@pytest.mark.parametrize("pattern", ["out", "out/"])
def test_a_named_folder_of_checkpoints_is_these(tmp_path: Path, pattern: str) -> None:
    write(tmp_path / "work/out", "log.txt")
    for step in (5, 10):
        write(tmp_path / f"work/out/step-{step}", *DCP)
    assert found(tmp_path, pattern) == {f"out/step-{step}": below(f"out/step-{step}", DCP) for step in (5, 10)}


def test_the_working_folder_itself_is_no_checkpoint(tmp_path: Path) -> None:
    write(tmp_path / "work", "config.json", "model.safetensors", "train.py")
    assert found(tmp_path, "*.safetensors", "*") == {"config.json": None, "model.safetensors": None, "train.py": None}


def test_links_and_pipes_are_told_and_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "secret", "id")
    folder = tmp_path / "work/out/checkpoint-1"
    write(folder, *TRAINER)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "file").symlink_to(tmp_path / "secret/id")
    os.mkfifo(folder / "pipe")
    (tmp_path / "work/out/checkpoint-2").symlink_to(tmp_path / "secret")
    [match] = folders.find(Search(tmp_path), ("work",), ["out/*"])
    assert isinstance(match, FolderMatch)
    assert [file.parts[-1] for file in match.files] == sorted(TRAINER)
    assert [parts[-1] for parts in match.left_out] == ["file", "link", "pipe"]


def test_the_status_of_a_folder_changes_with_each_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "work/out/checkpoint-1"
    write(folder, *TRAINER)
    seen = set[tuple[int, int, int]]()

    def look() -> None:
        [match] = folders.find(Search(tmp_path), ("work",), ["out/*"])
        status = match.status
        assert status.st_size == sum(path.stat().st_size for path in folder.iterdir())
        assert status.st_mtime_ns == max(path.stat().st_mtime_ns for path in folder.iterdir())
        seen.add((status.st_ino, status.st_size, status.st_mtime_ns))

    look()
    look()
    assert len(seen) == 1
    os.utime(folder / "config.json", ns=(1, 1))
    look()
    write(folder, "more", content="")
    os.utime(folder / "more", ns=(1, 1))
    look()
    (folder / "more").rename(folder / "other")
    look()
    (folder / "optimizer.pt").write_text("longer")
    look()
    assert len(seen) == 5


@pytest.mark.parametrize(
    ("folder", "names", "expected"),
    [
        ("step-1", DCP, None),
        ("step-1", DCP[:2], "there is no .metadata"),
        ("checkpoint-1", TRAINER, None),
        ("checkpoint-1", TRAINER[:-1], "there is no trainer_state.json"),
        ("out", TRAINER[:-1], None),
        ("epoch_0", ACCELERATE, None),
        ("epoch_0", ACCELERATE[:-1], "there are no random_states_*.pkl"),
        ("m", PARTS, None),
        ("m", PARTS[1:], "there is no model-00001-of-00002.safetensors"),
        ("m", ("a-00001-of-99999.bin",), None),
        ("m", ("anything",), None),
    ],
)
def test_what_is_still_to_be_written_is_told(folder: str, names: tuple[str, ...], expected: str | None) -> None:
    assert layouts.lacking(folder, dict.fromkeys(names, 1)) == expected


def test_an_empty_file_of_weights_is_still_to_be_written() -> None:
    assert layouts.lacking("m", {"model.safetensors": 0, "a": 1}) == "model.safetensors is empty"
    assert layouts.lacking("m", {"merges.txt": 0, "a": 1}) is None


def test_what_lies_deeper_is_still_to_be_written_too(tmp_path: Path) -> None:
    write(tmp_path / "work/out/checkpoint-1", "trainer_state.json", "optimizer_0/__0_0.distcp")
    [match] = folders.find(Search(tmp_path), ("work",), ["out/*"])
    assert isinstance(match, FolderMatch) and match.lacks == "there is no .metadata"


def test_a_folder_is_sealed_by_the_file_that_is_written_last() -> None:
    assert layouts.is_sealed({"__0_0.distcp": 5, ".metadata": 5})
    assert not layouts.is_sealed({"__0_0.distcp": 6, ".metadata": 5})
    assert not layouts.is_sealed({"__0_0.distcp": 6})
    assert not layouts.is_sealed({"model/.metadata": 6})
