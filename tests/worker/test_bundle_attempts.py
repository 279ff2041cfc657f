"""Attempts of jobs whose code and data are bundles, with real processes in the sandbox."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.approved import Approved
from tests.trainer.bases import tiny_base
from tests.trainer.language import prompts, sections
from tests.worker.attempt import WARM_LAUNCH, Attempt
from torchyard.contract.bundles.names import digest_in
from torchyard.contract.errors import DataError
from torchyard.contract.states import EndReason

START = "agent"
"""Starts less than a cold start does: the supervisor is a fork."""
SHOWS_ITS_PLACE = """
import json, os, sys
import helper
print(json.dumps({
    "cwd": os.getcwd(), "argv": sys.argv[1:], "path": sys.path[0], "name": __name__, "helper": helper.__file__,
    "files": sorted(set(os.listdir()) - {"__pycache__"}), "world": os.environ.get("WORLD_SIZE"),
}))
"""


def _script(code: str, **config: Any) -> dict[str, Any]:
    return {"trainer": "script", "config": {"code": code, **config}}


@WARM_LAUNCH
@pytest.mark.parametrize(
    "program",
    [pytest.param({}, marks=pytest.mark.thorough), {"entrypoint": "a/b/train.py"}, {"module": "a.b.train"}],
    ids=["default", "entrypoint", "module"],
)
def test_a_bundle_runs_as_it_would_by_hand(attempt: Attempt, program: dict[str, str]) -> None:
    files = {"train.py": SHOWS_ITS_PLACE, "helper.py": "", "data.txt": "x"}
    files |= {"a/b/train.py": SHOWS_ITS_PLACE, "a/b/helper.py": ""}
    code = attempt.add_bundle(files)
    attempt.start_spec(_script(code, args=["--lr", "1"], **program), world_size=1)
    assert attempt.report().reason is EndReason.COMPLETED, attempt.log("rank-0", "stderr")
    shown = eval(attempt.log("rank-0", "stdout"))
    folder = attempt.run.work
    beside = folder / "a" / "b" if "entrypoint" in program else folder
    assert shown == {
        "cwd": str(folder),
        "argv": ["--lr", "1"],
        "path": str(beside),
        "name": "__main__",
        "helper": str(beside / "helper.py"),
        "files": ["a", "data.txt", "helper.py", "train.py"],
        "world": "1",
    }


COMMAND = """#!/bin/sh
echo "args $*"
echo "folder $PWD"
echo "world [$WORLD_SIZE] [$RANK] devices [${CUDA_VISIBLE_DEVICES-unset}] mine [$MINE]"
echo trouble >&2
exit "$1"
"""


@pytest.mark.parametrize(("code", "reason"), [(0, EndReason.COMPLETED), (7, EndReason.USER_ERROR)])
def test_a_command_runs_once_and_its_exit_code_is_the_attempts(attempt: Attempt, code: int, reason: EndReason) -> None:
    bundle = attempt.add_bundle({"bin/run.sh": COMMAND})
    spec = _script(bundle, command="bin/run.sh", args=[str(code), "b c"]) | {"env": {"MINE": "1"}}
    attempt.start_spec(spec, world_size=2)
    report = attempt.report()
    assert (report.reason, report.exit_code) == (reason, code or None)
    assert report.message == ("the command exited with code 7" if code else "")
    assert attempt.log("rank-0", "stdout").splitlines() == [
        f"args {code} b c",
        f"folder {attempt.run.work}",
        "world [] [] devices [] mine [1]",
    ]
    assert attempt.log("rank-0", "stderr") == "trouble\n"
    assert attempt.running_processes() == []


@WARM_LAUNCH
@pytest.mark.thorough
def test_a_command_of_the_environment_starts_its_own_ranks(attempt: Attempt) -> None:
    code = attempt.add_bundle({"train.py": RANKS})
    attempt.launcher = "torchrun"
    torchrun = ["--standalone", "--nproc-per-node=2", "train.py"]
    attempt.start_spec(_script(code, command="torchrun", args=torchrun))
    assert attempt.report().reason is EndReason.COMPLETED, attempt.log("rank-0", "stderr")
    assert "together 3" in attempt.log("rank-0", "stdout")


RANKS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(value)
if dist.get_rank() == 0:
    print("together", value.item(), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    "command",
    [
        "no-such-program",
        pytest.param("./no.sh", marks=pytest.mark.thorough),
        "plain",
        pytest.param("bare.sh", marks=pytest.mark.thorough),
    ],
)
def test_a_command_that_cannot_be_executed_is_an_error_of_the_spec(
    attempt: Attempt, command: str, approved: Approved
) -> None:
    code = attempt.add_bundle({"plain": "#!/bin/sh\n", "bare.sh": "true\n"})
    attempt.start_spec(_script(code, command=command))
    report = attempt.report()
    assert (report.reason, report.message) == (EndReason.CONFIG_ERROR, approved.of_row("message"))


def test_a_command_is_stopped_like_a_rank(attempt: Attempt) -> None:
    waits = (
        "#!/bin/sh\ntrap 'echo stopped; exit 0' TERM\ntouch $TORCHYARD_RUN_DIR/ready\nwhile :; do sleep 0.05; done\n"
    )
    attempt.start_spec(_script(attempt.add_bundle({"run.sh": waits}), command="run.sh"))
    attempt.wait_for_file("ready")
    attempt.stop()
    assert attempt.report().reason is EndReason.CANCELLED
    assert attempt.log("rank-0", "stdout") == "stopped\n"


READS_MOUNTS = """
import os, pathlib
mounts = pathlib.Path(os.environ["TORCHYARD_MOUNTS"])
print(sorted(os.listdir(mounts)), (mounts / "weights" / "w.txt").read_text(), (mounts / "data" / "d.txt").read_text())
for path in (mounts / "weights" / "w.txt", mounts / "data" / "d.txt", mounts / "weights" / "new", mounts / "new"):
    for change in (lambda: path.write_text("poison"), lambda: os.chmod(path, 0o777), path.unlink):
        try:
            change()
        except OSError:
            continue
        print("changed", path)
"""


@WARM_LAUNCH
def test_mounts_are_read_only_folders(attempt: Attempt, approved: Approved) -> None:
    data = attempt.run.root / "code" / "data"
    data.mkdir(parents=True)
    (data / "d.txt").write_text("data")
    weights = attempt.add_bundle({"w.txt": "weights"})
    attempt.start_spec(
        _script(attempt.add_bundle({"train.py": READS_MOUNTS}), mounts={"weights": weights, "data": f"file://{data}"}),
        world_size=1,
    )
    assert attempt.report().reason is EndReason.COMPLETED, attempt.log("rank-0", "stderr")
    assert attempt.log("rank-0", "stdout") == approved("log")


READS_PLACES = """
import os, pathlib, sys
print(pathlib.Path(sys.argv[1], "w.txt").read_text(), sys.argv[2:], os.environ["OUT"], os.environ["HIDDEN"])
print(pathlib.Path("in/data/d.txt").read_text())
pathlib.Path(os.environ["OUT"]).mkdir()
for path in map(pathlib.Path, ("in/data/d.txt", "in/data/new")):
    for change in (lambda: path.write_text("poison"), lambda: os.chmod(path, 0o777), path.unlink):
        try:
            change()
        except OSError:
            continue
        print("changed", path)
"""


@WARM_LAUNCH
def test_a_program_reads_mounts_by_its_arguments_and_at_paths_of_its_folder(attempt: Attempt) -> None:
    weights, data = attempt.add_bundle({"w.txt": "weights"}), attempt.add_bundle({"d.txt": "data"})
    spec = _script(
        attempt.add_bundle({"train.py": READS_PLACES, "in/data/d.txt": "of the code", "in/x.txt": ""}),
        mounts={"weights": weights, "./in/data": data},
        args=["$TORCHYARD_MOUNTS/weights", "$$TORCHYARD_MOUNTS", "$HOME ${TORCHYARD_SECRETS}"],
    )
    attempt.start_spec(spec | {"env": {"OUT": "${TORCHYARD_RUN_DIR}/out", "HIDDEN": "$x"}}, world_size=1)
    assert attempt.report().reason is EndReason.COMPLETED, attempt.log("rank-0", "stderr")
    run = attempt.run
    args = ["$TORCHYARD_MOUNTS", "$HOME ${TORCHYARD_SECRETS}"]
    assert attempt.log("rank-0", "stdout") == f"weights {args} {run.job}/out $x\ndata\n"
    assert (run.job / "out").is_dir()
    assert (run.work / "in" / "data.set-aside" / "d.txt").read_text() == "of the code"


POISONS = """
import os, pathlib, sys
pathlib.Path("train.py").write_text("poison")
pathlib.Path("new.txt").write_text("new")
os.chmod("run.sh", 0o600)
for folder in sys.argv[1:]:
    folder = pathlib.Path(folder)
    for change in (
        lambda: os.chmod(folder, 0o700), lambda: os.listdir(folder), lambda: (folder / "train.py").read_text(),
        lambda: (folder / "train.py").write_text("poison"), lambda: (folder / "x").mkdir(), lambda: folder.rename("x"),
    ):
        try:
            change()
        except OSError:
            continue
        sys.exit("the cache is not closed")
"""


@WARM_LAUNCH
def test_an_attempt_changes_its_own_copy_and_neither_sees_nor_changes_the_cache(attempt: Attempt) -> None:
    code = attempt.add_bundle({"train.py": POISONS, "run.sh": ""})
    tree = attempt.bundles.tree(digest_in(code) or "", owner="ada")
    attempt.start_spec(_script(code, args=[str(tree), str(tree.parent)]), world_size=1)
    assert attempt.report().reason is EndReason.COMPLETED, attempt.log("rank-0", "stderr")
    assert (tree / "train.py").read_text() == POISONS
    assert sorted(path.name for path in tree.iterdir()) == ["run.sh", "train.py"]
    assert (attempt.run.work / "train.py").read_text() == "poison"
    assert (tree / "train.py").stat().st_nlink == 1


@WARM_LAUNCH
@pytest.mark.thorough
def test_a_recipe_trains_on_a_bundle(attempt: Attempt) -> None:
    texts = {f"train/{label}.txt": "\n".join(f"{word} {n}" for n in range(8)) for label, word in WORDS.items()}
    data = {"source": attempt.add_bundle(texts | {name.replace("train", "val"): "x\n" for name in texts})}
    config = {"data": data, "training": {"max_steps": 2}}
    attempt.start_spec({"trainer": "text-classification", "config": config}, world_size=1)
    assert attempt.report().reason is EndReason.COMPLETED, attempt.log("rank-0", "stderr")


WORDS = {"good": "fine", "bad": "poor"}


@pytest.mark.thorough
def test_a_language_model_trains_on_a_base_that_is_a_bundle(attempt: Attempt, tmp_path: Path) -> None:
    base = tiny_base(tmp_path / "base")
    weights = attempt.add_bundle({file.name: file.read_bytes() for file in base.iterdir()})
    data = attempt.add_bundle({"data.jsonl": prompts(tmp_path / "data.jsonl").read_bytes()})
    config = sections(base, tmp_path, training={"max_steps": 2}) | {"model": {"weights": weights}}
    config["data"] = {**config["data"], "source": data}
    attempt.start_spec({"trainer": "causal-lm", "config": config}, world_size=1)
    assert attempt.report().reason is EndReason.COMPLETED, attempt.log("rank-0", "stderr")
    (checkpoint,) = attempt.run.checkpoints.iterdir()
    described = json.loads((checkpoint / "adapter_config.json").read_text())
    assert described["base_model_name_or_path"] == weights


@WARM_LAUNCH
def test_a_spec_without_mounts_has_no_variable_for_them(attempt: Attempt) -> None:
    attempt.start_job("import os; print('TORCHYARD_MOUNTS' in os.environ)", world_size=1)
    attempt.report()
    assert attempt.log("rank-0", "stdout") == "False\n"


def test_a_mount_that_is_no_folder_is_refused(attempt: Attempt, tmp_path: Path, approved: Approved) -> None:
    file = attempt.script("")
    spec = _script(attempt.add_bundle({"train.py": ""}), mounts={"data": f"file://{file}"})
    with pytest.raises(DataError) as raised:
        attempt.start_spec(spec)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_a_mount_outside_the_allowed_folders_is_refused(attempt: Attempt, approved: Approved) -> None:
    with pytest.raises(DataError) as raised:
        attempt.start_spec(_script(attempt.add_bundle({"train.py": ""}), mounts={"data": "file:///etc"}))
    assert str(raised.value) == approved("message")
