"""Gives an attempt its own packages, if its job asks for some: installed while its runner takes turns."""

from store.facts.attempts import AttemptFacts
from torchyard.contract.errors import ConfigError
from torchyard.contract.rundir import RunDir
from torchyard.contract.spec import ScriptSpec, parse_spec
from worker.engines.base import AttemptPlan
from worker.packages import requirements
from worker.packages.cache import PackageCache
from worker.packages.installation import Installation


def installation_of(
    attempt: AttemptFacts, plan: AttemptPlan, *, packages: PackageCache, run: RunDir
) -> Installation | None:
    """Returns what installs the packages of an attempt; None if its job takes the worker's. Raises ConfigError."""
    spec = parse_spec(attempt.spec)
    if not isinstance(spec, ScriptSpec) or spec.config.requirements is None:
        return None
    obstacle = packages.rules.obstacle()
    if obstacle is not None:
        advice = "leave config.requirements out, or ask the operator to install what is needed"
        raise ConfigError(f"{obstacle}: {advice}")
    order = requirements.order_of(plan.source or plan.cwd, spec.config, packages.rules)
    return None if order is None else Installation(packages, order, owner=attempt.owner, run=run)
