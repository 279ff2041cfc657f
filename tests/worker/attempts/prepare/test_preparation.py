"""The plan of an attempt: its environment, its folders, its command."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
import os
from pathlib import Path
import sys
from typing import Any
from urllib.parse import quote

import pytest

from tests.approved import Approved
from torchyard.contract.attempts.records import LaunchPlan, NodePart
from torchyard.contract.attempts.rundir import SHARD_ABOVE, Env, RunDir
from torchyard.contract.cluster.devices import IsolationReport
from torchyard.contract.errors import ConfigError, DataError, InvalidSpec
from torchyard.contract.spec.spec import parse_spec
from torchyard.run.given import Given
from worker.attempts.prepare.preparation import plan_of
from worker.devices.inventory import Device
from worker.engines.base import ClusterRequest
from worker.engines.local.confinement import Confinement
from worker.engines.local.launch_plans import launch_plan
from worker.engines.local.launchers import rank_start
from worker.engines.local.launchers.base import Launcher
from worker.engines.local.launchers.command import CommandLauncher
from worker.engines.local.launchers.torchrun import TorchrunLauncher
from worker.engines.local.launchers.warm import WarmLauncher
from worker.host.attempt_key import AttemptKey
from worker.sandbox.writable import WritableFolders

GPUS = [Device(index, f"GPU-0000-{index}", "H200", "cuda", 1 << 37) for index in (1, 3)]
SLOTS = [Device(index, f"cpu-{index}", "CPU slot", "cpu") for index in range(2)]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    created = RunDir(tmp_path / "run")
    created.create()
    return created


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    folder = tmp_path / "allowed"
    folder.mkdir()
    return folder


def _plan(run: RunDir, raw: dict[str, Any], *, devices: Sequence[Device] = SLOTS, **changes: Any) -> LaunchPlan:
    arguments: dict[str, Any] = {
        "key": AttemptKey("job_x", 2),
        "owner": "ada",
        "claimed_at": 1,
        "run": run,
        "devices": tuple(device.uuid for device in devices),
        "resume_from": None,
        "time_left": timedelta(hours=1),
        "allowed": [],
        "secrets": {},
    }
    environ = changes.pop("environ", {"PATH": "/usr/bin"})
    environment = changes.pop("environment", None)
    plan = replace(plan_of(parse_spec(raw), **(arguments | changes)), environment=environment)
    return launch_plan(plan, run=run, launcher=TorchrunLauncher(), slots=2, devices=plan.devices, environ=environ)


def _recipe(source: str = "digits", **model: str) -> dict[str, Any]:
    return {"trainer": "image-classification", "config": {"data": {"source": source}, "model": model}}


def _script(code: Path, **config: Any) -> dict[str, Any]:
    return {"trainer": "script", "config": {"code": f"file://{code}", **config}}


def test_a_recipe_runs_the_trainer_in_the_run_directory(run: RunDir) -> None:
    plan = _plan(run, _recipe())
    rank = [sys.executable, "-I", "-S", rank_start.__file__, "-m", "trainer"]
    assert plan.argv[-len(rank) :] == rank
    assert "--nproc-per-node=2" in plan.argv
    assert (plan.cwd, plan.world_size) == (str(run.job), 2)
    assert plan.env["TORCHYARD_DATA"] == "digits"
    assert "TORCHYARD_WEIGHTS" not in plan.env
    assert "TORCHYARD_RESUME_FROM" not in plan.env


def test_a_script_runs_in_its_code_folder_with_its_arguments(run: RunDir, allowed: Path) -> None:
    (allowed / "train.py").touch()
    plan = _plan(run, _script(allowed, args=["--lr", "0.1"]), allowed=[allowed], resume_from=run.resume)
    assert plan.argv[-3:] == [str(allowed / "train.py"), "--lr", "0.1"]
    assert plan.cwd == str(allowed)
    assert "TORCHYARD_DATA" not in plan.env
    assert plan.env["TORCHYARD_RESUME_FROM"] == str(run.resume)


def test_torchrun_is_the_workers_unless_the_environment_has_a_torch_of_its_own(
    run: RunDir, allowed: Path, tmp_path: Path
) -> None:
    (allowed / "train.py").touch()
    environment, python = tmp_path / "venv", f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = environment / "lib" / python / "site-packages"
    packages.mkdir(parents=True)

    def pythons() -> tuple[str, str]:
        argv = _plan(run, _script(allowed), allowed=[allowed], environment=environment).argv
        return argv[0], argv[argv.index("-I") - 1]

    assert pythons() == (sys.executable, str(environment / "bin" / "python"))
    (packages / "torch").mkdir()
    assert pythons() == (str(environment / "bin" / "python"),) * 2


def test_the_launcher_has_inherited_variables_and_the_services_and_only_the_ranks_the_jobs(
    run: RunDir, allowed: Path
) -> None:
    secrets = {
        "TORCHYARD_TOKEN": "t",
        "TORCHYARD_DATABASE": "d",
        "TORCHYARD_REDIS": "r",
        "AWS_SECRET_ACCESS_KEY": "k",
        "HF_TOKEN": "h",
        "PYTHONPATH": "/p",
        "CUDA_VISIBLE_DEVICES": "7",
    }
    shared = {"PATH": "/usr/bin", "LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": "/opt", "NVIDIA_VISIBLE_DEVICES": "all"}
    shared |= {"TORCH_HOME": "/cache/torch", "HF_HOME": "/cache/hf"}
    (allowed / "train.py").touch()
    spec = _script(allowed) | {"env": {"WANDB_MODE": "offline", "GLOO_SOCKET_IFNAME": "eth0", "PATH": "/mine"}}
    plan = _plan(run, spec, environ=secrets | shared, allowed=[allowed])
    service = {
        "TORCHYARD_JOB_ID": "job_x",
        "TORCHYARD_ATTEMPT": "2",
        "TORCHYARD_RUN_DIR": str(run.job),
        "TORCHYARD_CONFIG": str(run.config),
        "TORCHYARD_CHECKPOINT_DIR": str(run.checkpoints),
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
    }
    threads = str(max(1, len(os.sched_getaffinity(0)) // 2))
    dump = f"{run.collectives}/nccl_trace_rank_"
    service |= {"TORCHYARD_CPUS": threads}
    assert plan.env == shared | service | {"OMP_NUM_THREADS": threads, "TORCH_FR_DUMP_TEMP_FILE": dump}
    assert plan.rank_env == {"WANDB_MODE": "offline", "PATH": "/mine"}


def test_the_steps_to_profile_are_a_variable_of_the_ranks(run: RunDir) -> None:
    assert "TORCHYARD_PROFILE" not in _plan(run, _recipe()).env
    assert _plan(run, _recipe() | {"profile": {"steps": 3}}).env["TORCHYARD_PROFILE"] == "20:3"


def test_where_to_pause_is_a_variable_that_a_spec_cannot_set(run: RunDir) -> None:
    assert "TORCHYARD_PAUSE_AT" not in _plan(run, _recipe()).env
    plan = _plan(run, _recipe(), variables={"TORCHYARD_PAUSE_AT": "epochs:3"})
    assert plan.env["TORCHYARD_PAUSE_AT"] == "epochs:3"
    with pytest.raises(InvalidSpec):
        parse_spec(_recipe() | {"env": {"TORCHYARD_PAUSE_AT": "epochs:3"}})


def test_gpus_are_named_by_uuid(run: RunDir) -> None:
    assert _plan(run, _recipe(), devices=GPUS).env["CUDA_VISIBLE_DEVICES"] == "GPU-0000-1,GPU-0000-3"


def test_data_below_an_allowed_folder_is_resolved(run: RunDir, allowed: Path, tmp_path: Path) -> None:
    data = allowed / "a b#c?d%.npz"
    data.touch()
    (tmp_path / "link").symlink_to(allowed)
    url = f"file://{quote(str(tmp_path / 'link' / data.name))}"
    plan = _plan(run, _recipe(url), allowed=[tmp_path / "link"])
    assert plan.env["TORCHYARD_DATA"] == str(data)


@pytest.mark.parametrize("trainer", ["image-classification", "segmentation", "text-classification"])
def test_weights_below_an_allowed_folder_are_resolved(run: RunDir, allowed: Path, trainer: str) -> None:
    (allowed / "data").mkdir()
    (allowed / "weights").touch()
    config = {"data": {"source": f"file://{allowed}/data"}, "model": {"weights": f"file://{allowed}/./weights"}}
    env = _plan(run, {"trainer": trainer, "config": config}, allowed=[allowed]).env
    assert (env["TORCHYARD_DATA"], env["TORCHYARD_WEIGHTS"]) == (f"{allowed}/data", f"{allowed}/weights")


@pytest.mark.parametrize("weights", ["none", "IMAGENET1K_V1"])
def test_weights_that_are_not_a_file_have_no_path(run: RunDir, weights: str) -> None:
    assert "TORCHYARD_WEIGHTS" not in _plan(run, _recipe(weights=weights)).env


def test_weights_outside_the_allowed_folders_are_refused(
    run: RunDir, allowed: Path, tmp_path: Path, approved: Approved
) -> None:
    (tmp_path / "outside.pt").touch()
    with pytest.raises(DataError) as raised:
        _plan(run, _recipe(weights=f"file://{tmp_path}/outside.pt"), allowed=[allowed])
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


@pytest.mark.parametrize(
    "path",
    [
        "outside.npz",
        "allowed/../outside.npz",
        "allowed/%2e%2e/outside.npz",
        "allowed/link/outside.npz",
        "allowed-not/x",
    ],
)
def test_data_outside_the_allowed_folders_is_refused(
    run: RunDir, allowed: Path, tmp_path: Path, path: str, approved: Approved
) -> None:
    (tmp_path / "outside.npz").touch()
    (tmp_path / "allowed-not").mkdir()
    (tmp_path / "allowed-not" / "x").touch()
    (allowed / "link").symlink_to(tmp_path)
    with pytest.raises(DataError) as raised:
        _plan(run, _recipe(f"file://{tmp_path}/{path}"), allowed=[allowed])
    assert str(raised.value) == approved.of_row("message", tmp_path=tmp_path)


def test_missing_data_is_named(run: RunDir, allowed: Path, approved: Approved) -> None:
    with pytest.raises(DataError) as caught:
        _plan(run, _recipe(f"file://{allowed}/none.npz"), allowed=[allowed])
    assert caught.value.message == approved("message", allowed=allowed)


@pytest.mark.parametrize("path", ["a%00b", "a%ffb", "a" * 300])
def test_an_invalid_path_is_refused(run: RunDir, allowed: Path, path: str) -> None:
    with pytest.raises(DataError):
        _plan(run, _recipe(f"file://{allowed}/{path}"), allowed=[allowed])


def test_a_missing_entrypoint_is_named(run: RunDir, allowed: Path, approved: Approved) -> None:
    with pytest.raises(DataError) as caught:
        _plan(run, _script(allowed, entrypoint="main.py"), allowed=[allowed])
    assert caught.value.message == approved("message", allowed=allowed)


def test_an_entrypoint_that_links_out_of_the_code_is_refused(
    run: RunDir, allowed: Path, tmp_path: Path, approved: Approved
) -> None:
    (tmp_path / "elsewhere.py").touch()
    (allowed / "train.py").symlink_to(tmp_path / "elsewhere.py")
    with pytest.raises(DataError) as raised:
        _plan(run, _script(allowed), allowed=[allowed])
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_code_must_be_a_folder(run: RunDir, allowed: Path, tmp_path: Path, approved: Approved) -> None:
    (allowed / "train.py").touch()
    with pytest.raises(DataError) as raised:
        _plan(run, _script(allowed / "train.py"), allowed=[allowed])
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


PART = NodePart(
    nodes=3, rank=1, first_rank=2, ranks=2, interface="eth0", address="10.0.0.2", master="10.0.0.1", port=4321
)
SEVERAL = ClusterRequest(nodes=3, devices_per_node=2, kind="cuda")


def _plan_of_node(
    run: RunDir,
    code: Path,
    launcher: Launcher,
    *,
    part: NodePart = PART,
    confinement: Confinement | None = None,
    **config: str,
) -> LaunchPlan:
    whole = plan_of(
        parse_spec(_script(code, **config)),
        key=AttemptKey("job_x", 2),
        owner="ada",
        claimed_at=1,
        run=run,
        devices=(),
        resume_from=None,
        time_left=timedelta(hours=1),
        allowed=[code],
        secrets={},
    )
    return launch_plan(
        replace(whole, cluster=SEVERAL),
        run=run.of_node(1),
        launcher=launcher,
        slots=2,
        devices=["GPU-a", "GPU-b"],
        node=part,
        environ={"PATH": "/usr/bin"},
        confinement=confinement,
    )


def test_a_node_gets_its_part_of_the_ranks_and_its_own_devices(run: RunDir, allowed: Path) -> None:
    (allowed / "train.py").touch()
    plan = _plan_of_node(run, allowed, TorchrunLauncher())
    assert (plan.world_size, plan.node, list(plan.ranks)) == (6, PART, [2, 3])
    assert plan.env["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert plan.env["NCCL_SOCKET_IFNAME"] == plan.env["GLOO_SOCKET_IFNAME"] == "eth0"
    assert plan.argv[4:11] == [
        "--rdzv-endpoint=10.0.0.1:4321",
        "--nnodes=3",
        "--node-rank=1",
        "--local-addr=10.0.0.2",
        "--max-restarts=0",
        "--nproc-per-node=2",
        f"--log-dir={run.job}/torchrun/node-1",
    ]


def test_an_address_of_ipv6_stands_in_brackets(run: RunDir, allowed: Path) -> None:
    (allowed / "train.py").touch()
    plan = _plan_of_node(run, allowed, TorchrunLauncher(), part=replace(PART, master="fd00::1"))
    assert plan.argv[4] == "--rdzv-endpoint=[fd00::1]:4321"


def test_a_command_on_a_node_is_told_its_part(run: RunDir, allowed: Path) -> None:
    plan = _plan_of_node(run, allowed, CommandLauncher(), command="deepspeed")
    assert plan.argv[-4:] == ["--command", "2", "2", "deepspeed"]
    part = {
        "NNODES": "3",
        "NODE_RANK": "1",
        "NPROC_PER_NODE": "2",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "4321",
    }
    assert part.items() <= plan.env.items()
    assert {f"PET_{name}": value for name, value in part.items()}.items() <= plan.env.items()


def test_a_warm_start_is_for_one_node(run: RunDir, allowed: Path, approved: Approved) -> None:
    (allowed / "train.py").touch()
    with pytest.raises(ConfigError) as raised:
        _plan_of_node(run, allowed, WarmLauncher())
    assert str(raised.value) == approved("message")


def test_strict_isolation_is_for_one_node(run: RunDir, allowed: Path, approved: Approved) -> None:
    (allowed / "train.py").touch()
    strict = Confinement(
        isolation=IsolationReport(level="strict", own_mounts=True),
        own_folders=WritableFolders(run.root / "worker"),
    )
    with pytest.raises(ConfigError) as raised:
        _plan_of_node(run, allowed, TorchrunLauncher(), confinement=strict)
    assert str(raised.value) == approved("message")


@pytest.mark.parametrize(("above", "told"), [(SHARD_ABOVE, None), (1 << 20, "1048576"), (0, "0"), (None, "")])
def test_the_ranks_of_a_recipe_are_told_above_which_size_each_writes_its_part(
    run: RunDir, above: int | None, told: str | None
) -> None:
    environ = _plan(run, _recipe(), shard_above=above).env
    assert environ.get(Env.SHARD_ABOVE) == told
    assert Given(environ).shard_above == above
