"""Judges what the nodes of a probe job have found out. Pure functions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from worker.doctor.findings import Finding, failed, ok, warning
from worker.doctor.probe.facts import NodeFacts, Outcome, Versions
from worker.sandbox import levels

_SKEW_S = 1.0
_NAMES = {"python": "Python", "torchyard": "Torchyard", "torch": "torch"}
_LINES, _PRINTED = 3, 400
"""Lines and characters of what a job printed, at most."""
_PATHS = "mount the data directory, and what Python and Torchyard are installed in, at the same paths on all nodes"
_LOCKS = "mount it with locks that all nodes share: NFS 4, and neither nolock nor local_lock"
_CLOCKS = "synchronise the clocks of all nodes: timedatectl set-ntp true, or chrony"


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What holds on the host of the doctor, and must hold on all nodes."""

    nodes: int
    uid: int
    versions: Versions
    folders: Sequence[str]


def judge(outcome: Outcome, expected: Expected) -> Iterator[Finding]:
    """Yields whether the probe ran, and what it has found."""
    if outcome.refused is not None:
        yield failed(
            "probe",
            f"Slurm takes no job: {outcome.refused}",
            "see what Slurm names: the accounts of TORCHYARD_SLURM_ACCOUNTS, or the rights of the service's user",
        )
        return
    if outcome.waits is not None:
        fact = f"its job has not started in time: Slurm says {outcome.waits}"
        yield warning("probe", fact, "run the doctor again when nodes are free")
        return
    yield _ran(outcome, expected)
    if not outcome.facts:
        return
    yield _folders(outcome.facts, expected)
    yield _user(outcome.facts, expected)
    yield _versions(outcome.facts, expected)
    yield _isolation(outcome.facts)
    if expected.nodes > 1:
        yield _locks(outcome.facts)
        yield _ports(outcome.facts)
    yield _clocks(outcome)


def _ran(outcome: Outcome, expected: Expected) -> Finding:
    names = _together([node.host for node in outcome.facts])
    silent = expected.nodes - len(outcome.facts)
    if not silent:
        return ok("probe", f"its job ran on {names}")
    answered = f"only {names} told" if names else "no node told"
    printed = [line.strip() for line in outcome.log.splitlines() if line.strip()]
    said = f"it printed: {'; '.join(printed[-_LINES:])[-_PRINTED:]}" if printed else "it printed nothing"
    return failed(
        "probe", f"{answered} the doctor anything; Slurm says {outcome.state or 'nothing'}, and {said}", _PATHS
    )


def _folders(nodes: Sequence[NodeFacts], expected: Expected) -> Finding:
    wrong = [f"{node.host} cannot read {folder}: {why}" for node in nodes for folder, why in node.unusable.items()]
    if wrong:
        advice = "mount them at the same paths on all nodes, readable for the service's user"
        return failed("folders", "; ".join(wrong), advice)
    return ok("folders", f"all nodes read {_together(expected.folders)}")


def _user(nodes: Sequence[NodeFacts], expected: Expected) -> Finding:
    others = [f"{node.uid} on {node.host}" for node in nodes if node.uid != expected.uid]
    if others:
        fact = f"the service's user has the number {expected.uid} here, {_together(others)}"
        return failed("user", fact, "give the user one number everywhere: useradd --uid, or a directory service")
    return ok("user", f"the service's user has the number {expected.uid} everywhere")


def _versions(nodes: Sequence[NodeFacts], expected: Expected) -> Finding:
    own = expected.versions.to_dict()
    wrong = [
        f"{node.host} has {_NAMES[key]} {there}, and this host {own[key]}"
        for node in nodes
        for key, there in node.versions.to_dict().items()
        if there != own[key]
    ]
    if wrong:
        return failed("versions", "; ".join(wrong), "install the same versions on all nodes, or share one environment")
    return ok("versions", _together([f"{_NAMES[key]} {version}" for key, version in own.items()]) + " on all nodes")


def _isolation(nodes: Sequence[NodeFacts]) -> Finding:
    refused = [f"{node.host}: {node.no_isolation}" for node in nodes if node.isolation is None]
    advice = "docs/operating/isolation.md says what this means, and how to allow it"
    if refused:
        return failed("isolation", "; ".join(refused), advice)
    by_host = {node.host: node.isolation for node in nodes if node.isolation is not None}
    by_text: dict[str, list[str]] = {}
    for host, level in by_host.items():
        by_text.setdefault(levels.describe(level), []).append(host)
    fact = "; ".join(f"on {_together(hosts)}: {text}" for text, hosts in by_text.items())
    lacks = any(level.lacks for level in by_host.values())
    return warning("isolation", fact, advice) if lacks else ok("isolation", fact)


def _locks(nodes: Sequence[NodeFacts]) -> Finding:
    wrong = partial(failed, "locks", advice=_LOCKS)
    if sum(node.was_first for node in nodes) > 1:
        return wrong(fact="several nodes have created one and the same file in the data directory")
    cannot = [f"{node.host} cannot: {node.met.no_locks}" for node in nodes if node.met.no_locks]
    if cannot:
        return wrong(fact=f"no file in the data directory can be locked: {'; '.join(cannot)}")
    if any(node.met.locks == "granted" for node in nodes):
        return wrong(fact="two nodes have locked one and the same file in the data directory")
    if any(node.met.locks == "refused" for node in nodes):
        return ok("locks", "a file that one node has locked is locked for the others")
    return warning("locks", "unknown whether nodes share locks of files: they did not meet", "see `ports`")


def _ports(nodes: Sequence[NodeFacts]) -> Finding:
    names = {node.rank: node.host for node in nodes}
    homeless = [f"{node.host}: {node.no_address}" for node in nodes if node.address is None]
    if homeless:
        return failed("ports", "; ".join(homeless), "see what it names")
    failures = [
        f"{node.host} cannot connect to {names.get(peer.rank, f'node {peer.rank}')}: {peer.error}"
        for node in nodes
        for peer in node.met.reached
        if peer.error is not None
    ]
    advice = (
        "open all TCP ports above 1023 between the nodes, or set TORCHYARD_INTERFACE to the network interface between"
        " them: ranks listen on ports that the kernel chooses"
    )
    if failures:
        return failed("ports", "; ".join(failures), advice)
    if not all(node.met.reached for node in nodes):
        return failed("ports", "the nodes did not meet", advice)
    return ok("ports", f"nodes reach each other at {_together([node.address or '' for node in nodes])}")


def _clocks(outcome: Outcome) -> Finding:
    names = {node.rank: node.host for node in outcome.facts}
    between = [
        (
            f"that of {names.get(peer.rank, 'another node')} is {abs(peer.clock_ahead_s):.1f} s"
            f" {'ahead of' if peer.clock_ahead_s > 0 else 'behind'} that of {node.host}"
        )
        for node in outcome.facts
        for peer in node.met.reached
        if peer.clock_ahead_s is not None and abs(peer.clock_ahead_s) - peer.uncertainty_s > _SKEW_S
    ]
    own = [
        f"that of {node.host} is not that of this host"
        for node in outcome.facts
        if not outcome.began - _SKEW_S <= node.time <= outcome.ended + _SKEW_S
    ]
    if between or own:
        return warning("clocks", f"clocks differ: {'; '.join([*between, *own])}", _CLOCKS)
    return ok("clocks", "the clocks of all nodes agree within a second")


def _together(names: Sequence[str]) -> str:
    """Formats `a, b and c`."""
    *others, last = names or [""]
    return f"{', '.join(others)} and {last}" if others else last
