"""What a supervisor starts: the launcher's command with the whole environment, from the plan of an attempt."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
import os

from torchyard.contract.attempts.records import LaunchPlan, NodePart
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.errors import ConfigError
from worker.engines.base import AttemptPlan
from worker.engines.local.confinement import Confined, Confinement
from worker.engines.local.environment import inherited
from worker.engines.local.launchers import rank_start
from worker.engines.local.launchers.base import Launcher, rank_environment
from worker.engines.local.launchers.command import variables_of_node
from worker.sandbox.opening import canonical

_OF_SERVICE = {"LD_LIBRARY_PATH"}
"""Variables for the libraries of the service's own Python."""


def launch_plan(
    plan: AttemptPlan,
    *,
    run: RunDir,
    launcher: Launcher,
    slots: int,
    devices: Sequence[str],
    node: NodePart | None = None,
    umask: int = 0o077,
    environ: Mapping[str, str] = os.environ,
    confinement: Confinement | None = None,
) -> LaunchPlan:
    """Returns what the supervisor starts, with the whole environment. Makes the folders that the attempt may write.

    `environ`: the worker's variables. `slots`: the number of the worker's devices. `devices`: the UUIDs of those that
    the attempt has here, by local rank. `node`: this host's part in an attempt over several; then `run` is that of the
    node. Raises OSError, and ConfigError if the launcher or the isolation is not for several nodes.
    """
    world_size, plan = plan.world_size, replace(plan, devices=tuple(devices))
    argv = launcher.command(plan, folder=run.torchrun, node=node)
    changeable, fixed = rank_environment(plan, slots=slots, interface="lo" if node is None else node.interface)
    if node is not None and plan.is_command:
        fixed |= variables_of_node(node)
    confined = Confined() if confinement is None else confinement.confine(plan, run=run, environ=environ)
    if node is not None and confined.sandbox is not None and confined.sandbox.strict is not None:
        raise ConfigError("strict isolation is for jobs on one node")
    env = (
        _without_service(plan, inherited(environ))
        | _of_environment(plan, environ)
        | changeable
        | dict(confined.env)
        | dict(plan.env)
        | fixed
    )
    unchangeable = fixed.keys() | plan.env.keys()
    return LaunchPlan(
        **plan.terms,
        launcher=launcher.name,
        argv=argv,
        env=env,
        rank_env={name: value for name, value in plan.job_env.items() if name not in unchangeable},
        cwd=canonical(plan.cwd) if confined.sandbox is None or confined.sandbox.strict is None else str(plan.cwd),
        umask=umask,
        world_size=world_size,
        node=node,
        sandbox=confined.sandbox,
    )


def _without_service(plan: AttemptPlan, variables: dict[str, str]) -> dict[str, str]:
    """Returns what a job inherits: in an environment of the host, nothing that is for the service's own libraries."""
    return variables if plan.named is None else {name: variables[name] for name in variables.keys() - _OF_SERVICE}


def _of_environment(plan: AttemptPlan, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that activate the job's own environment."""
    if plan.named is not None:
        return {**plan.named.variables, rank_start.RUN_PACKAGE: plan.named.run_package}
    if plan.environment is None:
        return {}
    path = f"{plan.environment / 'bin'}{os.pathsep}{environ.get('PATH', os.defpath)}"
    return {"VIRTUAL_ENV": str(plan.environment), "PATH": path}
