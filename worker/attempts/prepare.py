"""From a job's spec to the processes of an attempt: what the supervisor shall start, with which environment.

Ranks are torchrun's. They see an allow-list of the worker's environment, the job's own variables and the service's;
rendezvous and collectives stay on loopback, on ports that the kernel chooses, so any number of jobs share the host.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
import os
from pathlib import Path
import re
import sys
from typing import Any, Protocol
from urllib.parse import unquote

from store.rows.attempts import Claim
from torchyard.errors import DataError
from torchyard.failpoints import VARIABLE as FAILPOINTS
from torchyard.failpoints import failpoint
from torchyard.rundir import Env, LaunchPlan, ProcessIdentity, Record, RunDir, write_record
from torchyard.spec import RecipeSpec, ScriptSpec, Spec
from worker.engines.local import orphans

_INHERITED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|SSL_CERT_FILE|SSL_CERT_DIR"
    r"|LD_LIBRARY_PATH|NVIDIA_[A-Z_]+|CUDA_HOME|CUDA_PATH"
    r"|XDG_CACHE_HOME|TORCH_HOME|TORCHINDUCTOR_CACHE_DIR|TRITON_CACHE_DIR|HF_HOME|HF_HUB_CACHE|HF_HUB_OFFLINE"
    rf"|{FAILPOINTS}"  # which only a test sets, to break all programs of an attempt as one
)
_ELASTIC = (
    "--nnodes=1",
    "--rdzv-backend=c10d",
    "--rdzv-endpoint=127.0.0.1:0",
    "--local-addr=127.0.0.1",
    "--max-restarts=0",
)
_FILE = "file://"


class _HasUuid(Protocol):
    @property
    def uuid(self) -> str: ...


class _Config(Record):
    trainer: str
    config: dict[str, Any]
    checkpoint: dict[str, Any]


def plan(
    spec: Spec,
    *,
    claim: Claim,
    run: RunDir,
    devices: Sequence[_HasUuid],
    resume_from: Path | None,
    time_left: timedelta,
    allowed: Sequence[Path],
    slots: int,
    environ: Mapping[str, str] = os.environ,
) -> LaunchPlan:
    """How to run `spec` on `devices`, one rank each. Writes nothing.

    `slots`: devices of the worker, among which the cores are divided; `allowed`: the folders below which `file://`
    may point; `environ`: the worker's own environment. A script runs in its code folder, as it would by hand, a recipe
    in the run directory. Raises DataError where the data, the weights or the code are absent, or not below `allowed`.
    """
    own: dict[str, str] = {}
    if isinstance(spec, ScriptSpec):
        code = resolve(spec.config.code, allowed)
        program = [str(_entrypoint(code, spec.config.entrypoint)), *spec.config.args]
        folder = code
    else:
        own |= _sources(spec, allowed)
        program = ["-m", "trainer"]
        folder = run.root
    own |= _service_environment(claim, run, [device.uuid for device in devices])
    if resume_from is not None:
        own[Env.RESUME_FROM] = str(resume_from)
    threads = max(1, len(os.sched_getaffinity(0)) // max(slots, len(devices)))
    python = [sys.executable, "-P"]
    rank = ["--no-python", *python, "-u", "-m", "torchyard.rank", *program]
    here = [f"--nproc-per-node={len(devices)}", f"--log-dir={run.torchrun}"]
    return LaunchPlan(
        job_id=claim.job_id,
        attempt=claim.number,
        argv=[*python, "-m", "trainer.torchrun", *_ELASTIC, *here, *rank],
        env=inherited(environ) | {"OMP_NUM_THREADS": str(threads)} | spec.env | own,
        cwd=str(folder),
        world_size=len(devices),
        time_limit=max(time_left, timedelta(seconds=1)),
        stall_timeout=spec.stall_timeout,
        stop_grace=spec.stop_grace,
        reports=not isinstance(spec, ScriptSpec),
    )


def prepare(run: RunDir, spec: Spec, plan: LaunchPlan) -> None:
    """Writes what the ranks and the supervisor read: `config.json` and, last, `launch.json`. Raises OSError."""
    resolved = spec.model_dump(mode="json", include={"trainer", "config", "checkpoint"})
    write_record(run.config, _Config.model_validate(resolved))
    write_record(run.launch, plan)


def start(run: RunDir) -> ProcessIdentity | None:
    """Starts the supervisor of a prepared run directory, and answers who it is (None where it has ended already).

    It is in a session of its own and outlives the worker; while the worker lives, a thread waits for it, so that it
    leaves no zombie. Raises OSError.
    """
    failpoint("launch.start.before")
    with (run.root / "supervisor.log").open("ab") as log:
        command = [sys.executable, "-P", "-m", "worker.engines.local.supervisor", str(run.root.absolute())]
        supervisor = orphans.start(command, env=inherited(os.environ), log=log)
    failpoint("launch.start.after")
    return supervisor


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """What of the worker's environment its jobs may see: nothing of the service's own, and no credential."""
    return {name: value for name, value in environ.items() if _INHERITED.fullmatch(name)}


def resolve(url: str, allowed: Sequence[Path]) -> Path:
    """The existing file or folder at a `file:///…` URL, links followed. Raises DataError naming the path."""
    try:
        path = Path(unquote(url.removeprefix(_FILE), errors="strict"))
    except UnicodeDecodeError:
        raise DataError(f"{url} is no path in UTF-8") from None
    if "\0" in str(path):
        raise DataError(f"{url} is no path")
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(os.path.realpath(root)) for root in allowed):
        raise DataError(f"{path} is not below a folder that this worker allows (--allow-path)")
    if not os.path.exists(real):  # noqa: PTH110 Path.exists raises for a name that is too long
        raise DataError(f"there is no {path}")
    if not os.access(real, os.R_OK):
        raise DataError(f"{path} cannot be read by the worker")
    return real


def _sources(spec: RecipeSpec, allowed: Sequence[Path]) -> dict[str, str]:
    data, weights = spec.config.data.source, spec.config.model.weights
    found = {Env.DATA.value: str(resolve(data, allowed)) if data.startswith(_FILE) else data}
    if weights.startswith(_FILE):
        found[Env.WEIGHTS.value] = str(resolve(weights, allowed))
    return found


def _entrypoint(code: Path, name: str) -> Path:
    if not code.is_dir():
        raise DataError(f"{code} is no folder")
    script = Path(os.path.realpath(code / name))
    if not script.is_relative_to(code):
        raise DataError(f"{code / name} lies outside the code folder")
    if not os.path.isfile(script):  # noqa: PTH113 for the same reason
        raise DataError(f"there is no {code / name}")
    return script


def _service_environment(claim: Claim, run: RunDir, uuids: Sequence[str]) -> dict[str, str]:
    gpus = [uuid for uuid in uuids if not uuid.startswith("cpu-")]
    return {
        Env.JOB_ID: claim.job_id,
        Env.ATTEMPT: str(claim.number),
        Env.RUN_DIR: str(run.root),
        Env.CONFIG: str(run.config),
        Env.CHECKPOINT_DIR: str(run.checkpoints),
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
    }
