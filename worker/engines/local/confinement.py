"""How one worker confines its attempts: the level, the writable folders of each, and what the operator allows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchyard.contract.attempts.records import Sandbox, Strict
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.contract.cluster.devices import IsolationReport
from worker.engines.base import AttemptPlan
from worker.sandbox.policy import sandbox_of, strict_sandbox, temporary_in
from worker.sandbox.shared import TEMPORARY
from worker.sandbox.writable import WritableFolders


@dataclass(frozen=True)
class Confined:
    """What one attempt gets. `env`: the variables that name its folders."""

    env: Mapping[str, str] = field(default_factory=dict[str, str])
    sandbox: Sandbox | None = None


@dataclass(frozen=True, kw_only=True)
class Confinement:
    """Confines the attempts of one worker."""

    isolation: IsolationReport
    own_folders: WritableFolders
    readable: Sequence[Path] = ()
    """What the operator allows all jobs to read."""
    writable: Sequence[Path] = ()
    """What the operator allows all jobs to write."""
    namespaces: bool = False
    """Whether jobs may make namespaces of their own."""
    helper: Path | None = None
    """The socket of the helper. Strict isolation needs it."""

    def confine(self, plan: AttemptPlan, *, run: RunDir, environ: Mapping[str, str]) -> Confined:
        """Makes the folders of an attempt, and returns what it gets. Raises OSError.

        `environ`: the worker's variables.
        """
        if self.isolation.level == "off":
            return Confined()
        own_folders = self.own_folders.of(plan.key, owner=plan.owner)
        own_folders.create()
        env = own_folders.environment(environ) | {Env.ISOLATION.value: self.isolation.level}
        if self.isolation.level == "strict":
            strict = Strict(helper=str(self.helper), owner=plan.owner, bundles=sorted(plan.bundles))
            return Confined(env | {"TMPDIR": str(TEMPORARY)}, strict_sandbox(strict, own_folders))
        own_packages = () if plan.environment is None else (plan.environment,)
        sandbox = sandbox_of(
            self.isolation,
            run=run,
            own_folders=own_folders,
            readable=(*self.readable, *self.writable),
            checked=() if plan.named is None else plan.named.readable,
            writable=self.writable,
            own=(*plan.bundles.values(), *own_packages),
            namespaces=self.namespaces,
            gpus=bool(plan.gpus),
            environ={**environ, **env},
        )
        return Confined(env if sandbox is None else env | {"TMPDIR": temporary_in(sandbox)}, sandbox)
