"""The warm launcher: the ranks are forks of an agent, whose supervisor is a fork of the worker's warm process.

Each rank gets the environment that torchrun would give it.
"""

from collections.abc import Mapping
from itertools import islice
import os
from pathlib import Path
import re
from typing import Literal

from torchyard.contract.attempts.records import LaunchPlan, NodePart
from torchyard.contract.attempts.rundir import PYTHONPATH, Env, RunDir
from torchyard.contract.errors import ConfigError
from worker.engines.base import AttemptPlan
from worker.engines.local.launchers.agent import AgentProcess, AgentReport, Work
from worker.engines.local.launchers.group import RankGroup

_READ_AT_IMPORT = re.compile(
    r"PYTHON.*|LD_.*|GLIBC_.*|MALLOC_.*|LANG|LANGUAGE|LC_.*"
    r"|TORCH_.*|TORCH[A-Z]+_.*|PYTORCH_.*|ATEN_.*|C10_.*|KINETO_.*|TRITON_.*|HF_.*|HUGGINGFACE_.*|TRANSFORMERS_.*"
    r"|OMP_.*|GOMP_.*|KMP_.*|MKL_.*|DNNL_.*|ONEDNN_.*|OPENBLAS_.*|GOTO_.*|BLIS_.*|VECLIB_.*|NUMEXPR_.*|NPY_.*|NUMPY_.*"
)
"""Variables that Python, torch, NumPy and the libraries below them read once, when they are loaded."""

_MOST_BESIDE = 20_000
"""Names that are looked at: an earlier attempt of the job may have filled the folder."""


class WarmLauncher:
    """Launches the ranks as forks of an agent."""

    @property
    def name(self) -> Literal["warm"]:
        return "warm"

    def command(self, plan: AttemptPlan, *, folder: Path, node: NodePart | None = None) -> list[str]:
        if node is not None:
            raise ConfigError("launcher: warm is not possible over several nodes. Leave the launcher out")
        return list(plan.program)


def warm_start_obstacle(plan: AttemptPlan, *, loaded: frozenset[str]) -> str | None:
    """Returns why a process that has imported the modules `loaded` cannot run the plan's program, or None if it can."""
    named = (name for name in (*plan.job_env, *plan.secrets) if name != PYTHONPATH)  # a rank sees to that itself
    early = sorted(name for name in named if _READ_AT_IMPORT.fullmatch(name))
    if early:
        return f"{', '.join(early)} must be set when Python starts"
    shadowed = sorted(_modules_beside(plan) & loaded)
    if shadowed:
        return f"the code has modules of its own that are named like installed ones: {', '.join(shadowed)}"
    return None


def _modules_beside(plan: AttemptPlan) -> frozenset[str]:
    """Returns the names of the modules and packages that a script finds before the installed ones."""
    if Env.DATA in plan.env:  # a recipe finds none
        return frozenset()
    folder = plan.cwd if plan.program[0] == "-m" else Path(plan.program[0]).resolve().parent
    named = plan.job_env.get(PYTHONPATH, "")
    folders = [folder, *(Path(part) for part in named.split(os.pathsep) if part)]
    paths = [path for each in folders for path in _entries(each)]
    return frozenset(
        path.name.partition(".")[0]
        for path in paths
        if path.suffix in {".py", ".pyc", ".so"} or (path / "__init__.py").exists()
    )


def _entries(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in islice(entries, _MOST_BESIDE)]
    except OSError:
        return []


class ForkedRanks(AgentProcess):
    """An agent that forks the ranks of a plan, with their secrets."""

    def __init__(self, plan: LaunchPlan, run: RunDir, secrets: Mapping[str, str]) -> None:
        def prepare() -> Work:
            group = RankGroup(plan, run, dict(secrets))
            return Work(
                run=lambda fork_door: AgentReport(failures=group.run(fork_door)), variables=group.variables_beside
            )

        super().__init__(plan, run, prepare, reaps=True)

    def failures(self) -> list[tuple[int, int]]:
        return [(item[0], item[1]) for item in self.report.failures if len(item) == 2]
