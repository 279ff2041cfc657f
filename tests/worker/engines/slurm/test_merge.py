"""How an attempt over several nodes ended, by the reports of its nodes."""

from tests.approved import Approved
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.states import EndReason
from worker.engines.slurm.merge import Part, merge

DONE = ExitReport(reason=EndReason.COMPLETED)
PEER = ExitReport(reason=EndReason.USER_ERROR, message="RuntimeError: Connection closed by peer [10.0.0.1]")
BUG = ExitReport(reason=EndReason.USER_ERROR, message="ValueError: no luck", rank=3, traceback="Traceback: line 1")


def part(node: int, report: ExitReport, *, finished: bool = False, lost: bool = False) -> Part:
    return Part(node=node, host=f"n{node + 1}", report=report, finished=finished, lost=lost)


def test_an_attempt_is_complete_when_all_its_nodes_are() -> None:
    assert merge([part(0, DONE), part(1, DONE)], asked=None) == DONE
    assert merge([part(0, DONE), part(1, BUG)], asked=None).reason is EndReason.USER_ERROR


def test_the_first_failure_that_blames_no_peer_is_the_cause_and_names_its_node(approved: Approved) -> None:
    found = merge([part(0, PEER), part(1, BUG), part(2, PEER)], asked=None)
    assert found.message == approved("message")
    assert (found.rank, found.traceback) == (3, "Traceback: line 1")


def test_a_node_that_was_stopped_because_of_another_one_is_not_the_cause() -> None:
    stopped = ExitReport(reason=EndReason.WORKER_LOST, message="the attempt was asked to stop")
    assert merge([part(0, PEER), part(1, stopped)], asked=None, consequences={1}).message.startswith("node 0 (n1)")


def test_a_lost_node_is_the_cause_of_what_others_say_of_their_peers() -> None:
    gone = ExitReport(reason=EndReason.WORKER_LOST, message="node 1 (n2) was lost")
    assert merge([part(0, PEER), part(1, gone, lost=True)], asked=None) == gone
    assert merge([part(1, gone, lost=True), part(0, BUG)], asked=None).reason is EndReason.USER_ERROR


def test_an_attempt_that_was_asked_to_stop_has_that_reason() -> None:
    paused = ExitReport(reason=EndReason.PAUSED, message="paused")
    assert merge([part(0, paused), part(1, paused)], asked=EndReason.PAUSED) == paused
    assert merge([part(0, PEER), part(1, paused)], asked=EndReason.PAUSED) == paused


def test_ranks_that_left_before_their_supervisors_were_told_have_not_finished() -> None:
    left = [part(0, DONE), part(1, DONE)]
    assert merge(left, asked=EndReason.PAUSED).reason is EndReason.PAUSED
    finished = [part(0, DONE, finished=True), part(1, DONE, finished=True)]
    assert merge(finished, asked=EndReason.PAUSED).reason is EndReason.COMPLETED
    assert merge(finished, asked=EndReason.CANCELLED).reason is EndReason.CANCELLED


def test_the_time_limit_of_one_node_is_that_of_all() -> None:
    limit = ExitReport(reason=EndReason.TIME_LIMIT, message="the job's time limit was reached")
    assert merge([part(0, limit), part(1, DONE)], asked=None).reason is EndReason.TIME_LIMIT


def test_a_hang_has_the_stacks_of_all_nodes_in_their_order(approved: Approved) -> None:
    hangs = [
        ExitReport(reason=EndReason.HANG, message="no progress for 5m", traceback=f"stacks of {node}")
        for node in range(2)
    ]
    found = merge([part(0, hangs[0]), part(1, hangs[1])], asked=None, consequences={1})
    assert (found.reason, found.traceback) == (EndReason.HANG, approved("traceback"))


def test_the_report_of_a_single_node_is_as_without_a_cluster() -> None:
    assert merge([part(0, BUG)], asked=None) == BUG


def test_an_attempt_has_paused_by_itself_if_no_node_failed_and_one_says_so() -> None:
    paused = ExitReport(reason=EndReason.PAUSED, message="paused")
    assert merge([part(0, DONE, finished=True), part(1, paused)], asked=None) == paused
    assert merge([part(0, paused), part(1, BUG)], asked=None).reason is EndReason.USER_ERROR
    assert merge([part(0, paused), part(1, paused)], asked=EndReason.CANCELLED).reason is EndReason.CANCELLED
