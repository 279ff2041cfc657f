"""The environment of the host that a job names: found, made ready for one attempt, and described to the job's owner."""

from collections.abc import Mapping, Sequence
import os
from pathlib import Path
import sys

from store.worker.records import EarlierAttempt
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.cluster.devices import EnvironmentReport
from torchyard.contract.errors import ConfigError
from torchyard.contract.spec.spec import ScriptSpec, Spec
from worker.engines.base import NamedEnvironment
from worker.environments import run_package
from worker.environments.activation import activate
from worker.environments.environment import Environment, difference
from worker.environments.offered import Environments


def find(spec: Spec, environments: Environments) -> Environment | None:
    """Returns the environment that the spec names, as it is now, if it names one. Raises ConfigError."""
    if not isinstance(spec, ScriptSpec) or spec.config.python is None:
        return None
    environment = environments.find(spec.config.python)
    if spec.config.command is None and environment.obstacle:
        raise ConfigError(f"no ranks can run in the environment {environment.path}: {environment.obstacle}")
    return environment


def enter(
    environment: Environment, run: RunDir, earlier: Sequence[EarlierAttempt], *, environ: Mapping[str, str]
) -> tuple[NamedEnvironment, list[tuple[str, str]]]:
    """Writes what its programs need into the run directory. Returns what an engine needs, and messages with levels.

    `environ`: the worker's variables. Raises OSError.
    """
    run_package.write(run.run_package)
    activated = activate(environment, path=_path_without_service(environ))
    report = environment.report()
    said = [("info", f"runs in {_described(report)}"), *(("warning", note) for note in activated.notes)]
    before = next((each for each in reversed(earlier) if each.environment is not None), None)
    if before is not None and before.environment is not None:
        changed = difference(EnvironmentReport.from_dict(before.environment), report)
        if changed:
            said.append(
                ("warning", f"the environment {report.name} has changed since attempt {before.number}: {changed}")
            )
    named = NamedEnvironment(
        python=str(environment.interpreter),
        variables=dict(activated.variables),
        readable=list(environment.opened),
        run_package=str(run.run_package),
    )
    return named, said


def _path_without_service(environ: Mapping[str, str]) -> str:
    """Returns PATH without the programs of the service's own environment."""
    own = {str(Path(sys.prefix, "bin")), str(Path(sys.executable).parent)}
    parts = environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(part for part in parts if part not in own)


def _described(report: EnvironmentReport) -> str:
    torch = f"torch {report.torch}" if report.torch else "no torch"
    cuda = f" for CUDA {report.cuda}" if report.cuda else ""
    return f"{report.path}: Python {report.python}, {torch}{cuda}, {report.packages} packages ({report.digest})"
