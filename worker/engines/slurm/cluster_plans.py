"""Translates the plan of an attempt into the record that its nodes read, and back."""

from collections.abc import Mapping
import os
from pathlib import Path

from torchyard.contract.errors import ConfigError
from torchyard.contract.wire.version import own_version
from worker.engines.base import AttemptPlan, ClusterRequest
from worker.engines.local.environment import inherited
from worker.engines.slurm.records import ClusterPlan, NodeRules, Timing


def cluster_plan(
    plan: AttemptPlan, *, name: str, rules: NodeRules, timing: Timing, environ: Mapping[str, str]
) -> ClusterPlan:
    """Returns what the nodes start. It has everything of the plan but the secrets."""
    if plan.cluster is None:
        raise ConfigError("an attempt without nodes cannot be submitted to Slurm")
    return ClusterPlan(
        **plan.terms,
        name=name,
        version=own_version(),
        uid=os.getuid(),
        nodes=plan.cluster.nodes,
        devices_per_node=plan.cluster.devices_per_node,
        kind=plan.cluster.kind,
        program=list(plan.program),
        owner=plan.owner,
        env=dict(plan.env),
        job_env=dict(plan.job_env),
        environ=inherited(environ),
        cwd=str(plan.cwd.absolute()),
        launcher=plan.launcher,
        bundles={sha256: str(path) for sha256, path in plan.bundles.items()},
        environment=None if plan.environment is None else str(plan.environment),
        named=plan.named,
        rules=rules,
        timing=timing,
    )


def attempt_plan(plan: ClusterPlan, *, secrets: Mapping[str, str]) -> AttemptPlan:
    """Returns the plan of the attempt, on a node."""
    cluster = ClusterRequest(nodes=plan.nodes, devices_per_node=plan.devices_per_node, kind=plan.kind)
    return AttemptPlan(
        **plan.terms,
        program=tuple(plan.program),
        owner=plan.owner,
        env=plan.env,
        job_env=plan.job_env,
        cwd=Path(plan.cwd),
        devices=(),
        secrets=secrets,
        launcher=plan.launcher,
        bundles={sha256: Path(path) for sha256, path in plan.bundles.items()},
        environment=None if plan.environment is None else Path(plan.environment),
        named=plan.named,
        cluster=cluster,
    )
