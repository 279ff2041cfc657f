"""Checkpoints that cannot be listed take no more of one turn than others do."""

from tests.worker.attempts.output.relays import announce, drain, relay_of, storing, texts
from torchyard.contract.attempts.rundir import MANIFEST, RunDir
from worker.attempts.output.publishing import Spacing


def publish_broken(run: RunDir, *, many: int, announced: bool) -> None:
    for number in range(many):
        folder = run.checkpoints / f"step-{number:09}"
        folder.mkdir(parents=True)
        (folder / MANIFEST).write_text('{"step":1,"files":[{}]}')
        if announced:
            announce(run, folder.name)


def test_one_turn_looks_at_few_manifests_that_are_wrong(run: RunDir) -> None:
    publish_broken(run, many=20, announced=True)
    relay = relay_of(run)
    batch = relay.read()
    assert batch is not None
    assert 0 < len(texts([batch])) < 6
    with storing(relay, batch):
        pass
    assert len(texts(drain(relay))) + len(texts([batch])) == 20


def test_so_does_the_look_at_those_without_a_line_at_the_end(run: RunDir) -> None:
    publish_broken(run, many=20, announced=False)
    relay = relay_of(run)
    batch = relay.read(final=True)
    assert batch is not None
    assert 0 < len(texts([batch])) < 6
    with storing(relay, batch):
        pass
    assert len(texts(drain(relay, final=True))) + len(texts([batch])) == 20


def test_an_attempt_with_very_many_stores_one_a_minute() -> None:
    spacing = Spacing(2)
    assert not any(spacing.leaves_out(name, count=1) for name in "ab")
    assert not spacing.leaves_out("c", count=2)
    assert spacing.leaves_out("d", count=2)
    assert spacing.newest == "d"
