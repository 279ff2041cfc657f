"""Gives an attempt its own packages, if its job asks for some: installed while its runner takes turns."""

from dataclasses import replace

from store.facts.attempts import AttemptFacts
from torchyard.contract.errors import ConfigError
from torchyard.contract.rundir import RunDir
from torchyard.contract.spec import ScriptSpec, parse_spec
from worker.engines.base import AttemptPlan
from worker.packages import requirements
from worker.packages.cache import PackageCache
from worker.packages.installation import Installation, Installed, NotInstalled


class PackageSetup:
    """Installs the packages of one attempt. `plan` is what runs then."""

    def __init__(self, plan: AttemptPlan, installation: Installation) -> None:
        self.plan = plan
        self._installation = installation

    @classmethod
    def of(
        cls, attempt: AttemptFacts, plan: AttemptPlan, *, packages: PackageCache, run: RunDir
    ) -> "PackageSetup | None":
        """Returns the set-up, or None if the job takes the worker's packages.

        Raises ConfigError.
        """
        spec = parse_spec(attempt.spec)
        if not isinstance(spec, ScriptSpec) or spec.config.requirements is None:
            return None
        obstacle = packages.rules.obstacle()
        if obstacle is not None:
            advice = "leave config.requirements out, or ask the operator to install what is needed"
            raise ConfigError(f"{obstacle}: {advice}")
        order = requirements.order_of(plan.source or plan.cwd, spec.config, packages.rules)
        return None if order is None else cls(plan, Installation(packages, order, owner=attempt.owner, run=run))

    @property
    def has_filled_disk(self) -> bool:
        """Whether the installation failed because it left the disk little space."""
        return self._installation.has_filled_disk

    def poll(self) -> AttemptPlan | NotInstalled | None:
        """Returns the plan with the environment, why there is none, or None while it is made.

        Raises DataError, ConfigError and OSError.
        """
        found = self._installation.poll()
        if not isinstance(found, Installed):
            return found
        self.plan = replace(self.plan, environment=found.environment)
        return self.plan

    def close(self) -> None:
        """Ends an installation that goes on, and lets other attempts install."""
        self._installation.close()
