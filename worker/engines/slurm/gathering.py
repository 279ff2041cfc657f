"""Judges the nodes that have come up for one attempt."""

from collections.abc import Sequence

from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.states import EndReason
from worker.engines.slurm.records import ClusterPlan, HostDevices, NodeFacts, NodesReport
from worker.sandbox import levels

_LEVELS = ("off", "basic", "landlock", "strict")


def obstacle(plan: ClusterPlan, facts: Sequence[NodeFacts]) -> ExitReport | None:
    """Returns why the attempt cannot run on these nodes, or None. `facts`: by node."""
    for node in facts:
        problem = _problem(plan, node)
        if problem is not None:
            reason = EndReason.WORKER_LOST if node.may_pass else EndReason.CONFIG_ERROR
            return ExitReport(reason=reason, message=f"node {node.node} ({node.host}): {problem}")
    uuids = [device.uuid for node in facts for device in node.devices]
    if len(set(uuids)) != len(uuids):
        return ExitReport(reason=EndReason.CONFIG_ERROR, message="two nodes have the same devices")
    return None


def report_of_nodes(facts: Sequence[NodeFacts]) -> NodesReport:
    """Returns what the daemon learns of the nodes."""
    least = min((node.isolation for node in facts), key=lambda isolation: _LEVELS.index(isolation.level))
    nodes = [HostDevices(host=node.host, devices=node.devices) for node in facts]
    return NodesReport(nodes=nodes, isolation=levels.describe(least))


def _problem(plan: ClusterPlan, node: NodeFacts) -> str | None:
    if node.problem is not None:
        return node.problem
    if node.version != plan.version:
        return f"it has Torchyard {node.version}, and the pool's daemon {plan.version}: install the same on all nodes"
    if node.uid != plan.uid:
        return f"its user there is {node.uid}, and that of the pool's daemon {plan.uid}: use the same on all nodes"
    if len(node.devices) != plan.devices_per_node:
        return f"Slurm has given it {len(node.devices)} devices, and the job asks for {plan.devices_per_node}"
    return None
