"""The nodes of one attempt, as its coordinator knows them."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
import time
from typing import Any

from torchyard.contract.attempts.records import ExitReport, StopRequest
from torchyard.contract.states import EndReason
from worker.engines.local.supervisor.ending import log
from worker.engines.slurm.channel import Channel, ChannelClosed, Message
from worker.engines.slurm.merge import BY_THEMSELVES, Part
from worker.engines.slurm.records import ClusterPlan, NodeEnd, NodeFacts


@dataclass(eq=False)
class Member:
    """One node that has connected."""

    channel: Channel
    facts: NodeFacts | None = None
    closed: bool = False
    """Whether its connection has ended."""


class Members:
    """All nodes of one attempt."""

    def __init__(self, plan: ClusterPlan) -> None:
        self.consequences: set[int] = set()
        """The nodes that were stopped because another one had failed."""
        self._plan = plan
        self._all: list[Member] = []
        self._by_node: dict[int, Member] = {}
        self._parts: dict[int, Part] = {}
        """In the order in which they were known."""
        self._lost: dict[int, float] = {}
        """When the ranks of each lost node have surely ended."""
        self._beaten_at = 0.0

    @property
    def complete(self) -> bool:
        """Whether all nodes have come up."""
        return len(self._by_node) == self._plan.nodes

    def missing(self) -> list[int]:
        return [node for node in range(self._plan.nodes) if node not in self._by_node]

    def member(self, node: int) -> Member:
        return self._by_node[node]

    def facts(self) -> list[NodeFacts]:
        by_node = [self._by_node[node].facts for node in range(self._plan.nodes)]
        return [facts for facts in by_node if facts is not None]

    def descriptors(self) -> list[int]:
        return [member.channel.fileno() for member in self._all if not member.closed]

    def add(self, channel: Channel) -> None:
        self._all.append(Member(channel))

    def introduce(self, member: Member, facts: NodeFacts) -> None:
        """Notes who a member is. The first one of a node counts."""
        if member.facts is None and facts.node < self._plan.nodes and facts.node not in self._by_node:
            member.facts = facts
            self._by_node[facts.node] = member

    def receive(self) -> Generator[tuple[Member, Message]]:
        """Yields what the members have sent."""
        for member in [member for member in self._all if not member.closed]:
            try:
                member.channel.flush()
                for message in member.channel.receive():
                    yield member, message
            except ChannelClosed as error:
                self.drop(member, str(error))

    def end(self, member: Member, end: NodeEnd) -> None:
        """Notes how a node's part ended."""
        facts = member.facts
        if facts is not None and facts.node not in self._parts:
            part = Part(node=facts.node, host=facts.host, report=end.report, finished=end.finished)
            self._parts[facts.node] = part
            self._lost.pop(facts.node, None)

    def beat(self) -> None:
        """Shows all members that the coordinator lives, if that is due."""
        if time.monotonic() - self._beaten_at >= self._plan.timing.beat_s:
            self._beaten_at = time.monotonic()
            self.tell_all("beat")

    def tell_all(self, kind: str, body: Mapping[str, Any] | None = None) -> None:
        for member in self._all:
            self._send(member, kind, body)

    def tell(self, node: int, kind: str, body: Mapping[str, Any] | None = None) -> None:
        self._send(self._by_node[node], kind, body)

    def refuse(self, report: ExitReport) -> None:
        """Gives all nodes the same report: none of them starts anything."""
        for node, member in self._by_node.items():
            host = member.facts.host if member.facts is not None else ""
            self._parts[node] = Part(node=node, host=host, report=report, lost=True)

    def parts(self) -> list[Part]:
        """Returns the parts that have ended. That of a lost node has, once its ranks surely have."""
        self._find_lost()
        for node, ended_at in list(self._lost.items()):
            if time.monotonic() >= ended_at:
                self._parts[node] = self._lost_part(node)
                del self._lost[node]
        return list(self._parts.values())

    def first_failure(self) -> ExitReport | None:
        """Returns the first report of a failure, of a node that has ended or is lost. None: there is none."""
        failed = [part.report for part in self._parts.values() if part.report.reason not in BY_THEMSELVES]
        return next(iter(failed), None) or next((self._lost_part(node).report for node in self._lost), None)

    def stop_running(self, request: StopRequest) -> None:
        """Stops the nodes that have not ended, once."""
        for node in self._by_node.keys() - self._parts.keys() - self._lost.keys() - self.consequences:
            self.consequences.add(node)
            self.tell(node, "stop", request.to_dict())

    def _find_lost(self) -> None:
        """Counts the nodes as lost that are silent, or whose connection has ended without a report."""
        now, timing = time.monotonic(), self._plan.timing
        for node, member in self._by_node.items():
            if node in self._parts or node in self._lost:
                continue
            if member.closed or now - member.channel.heard_at > timing.silence_s:
                self._lost[node] = member.channel.heard_at + timing.silence_s + timing.kill_s

    def _lost_part(self, node: int) -> Part:
        facts = self._by_node[node].facts
        host = facts.host if facts is not None else ""
        message = f"node {node} ({host}) was lost: it has ended or does not answer"
        return Part(node=node, host=host, report=ExitReport(reason=EndReason.WORKER_LOST, message=message), lost=True)

    def _send(self, member: Member, kind: str, body: Mapping[str, Any] | None) -> None:
        if member.closed:
            return
        try:
            member.channel.send(kind, body)
        except ChannelClosed as error:
            self.drop(member, str(error))

    def drop(self, member: Member, why: str) -> None:
        """Ends the connection to a member."""
        member.closed = True
        member.channel.close()
        node = "unknown" if member.facts is None else member.facts.node
        log(f"the connection to node {node} has ended: {why}")
