"""Notifications: who is told what, exactly once, and how much of it."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
import secrets as random
from typing import Any

import pytest
from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from controller.notifications.deliver import FanOut
from store.db.database import in_us
from store.jobs import edits
from store.notifications import deliver, fan_out, messages, signals, targets
from store.notifications.facts import MessageFacts, NewTarget, TargetChange
from store.output.facts import NewEvent
from store.secret_keys import SecretKeys
from store.tables import Base, Message, Signal
from store.team import secrets, users
from store.team.callers import SERVICE
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from tests.sessions import read, write
from tests.store.fixture import StoreFixture, checkpoint, recorded_statements, run_together, store_on
from torchyard.contract.errors import Conflict, InvalidSpec, NotFound, TooManyRequests
from torchyard.contract.jobs.requests import JobPatch
from torchyard.contract.notifications.kinds import DEFAULT_ON, MOST_TARGETS, EventKind
from torchyard.contract.notifications.views import TargetView
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Role

ALL = tuple(EventKind)
KEY = random.token_hex(32)
FEW = 12
"""A limit of messages an hour that a test reaches soon."""


class Team:
    """A service with some users, and what they are told."""

    def __init__(self, db: StoreFixture) -> None:
        self.db = db
        self.store = store_on(db.database)
        self.store.secret_keys = SecretKeys(KEY, Path("/nowhere"))
        for name, role in (("ada", Role.MEMBER), ("eve", Role.MEMBER), ("root", Role.ADMIN)):
            db.write(partial(users.add, name=name, role=role, caller=SERVICE))

    def target(self, owner: str = "ada", name: str = "hook", **wanted: Any) -> TargetView:
        new: dict[str, Any] = {
            "kind": "webhook",
            "address": "https://example.com/x?key=hidden",
            "kinds": ALL,
        }
        wanted_target = NewTarget(owner=owner, name=name, **(new | wanted))
        return write(self.store, targets.add, self.store.secret_keys, wanted_target, caller=SERVICE)[0]

    def fan_out(self) -> None:
        while FanOut(self.store).run():
            pass

    def messages(self) -> Sequence[Message]:
        return self.db.read(lambda session: session.scalars(select(Message).order_by(Message.id)).all())

    def told(self) -> list[tuple[str, str]]:
        """Returns the target's owner and the kind of each message."""
        self.fan_out()
        return [(row.owner, row.kind) for row in self.messages()]

    def claim(self, count: int = 100) -> list[MessageFacts]:
        return write(self.store, deliver.claim, self.store.secret_keys, count=count, lease_s=60)

    def age(self, by: timedelta) -> None:
        """Makes all messages older."""
        us = in_us(by)
        older = {"created_at": Message.created_at - us, "next_at": Message.next_at - us}
        older["leased_until"] = Message.leased_until - us
        self.db.write(lambda session: session.execute(update(Message).values(**older)))

    def cancelled(self, owner: str = "ada", **spec: Any) -> str:
        """Submits a job and cancels it."""
        job_id = self.db.submit(owner=owner, **spec)
        self.db.cancel(job_id)
        return job_id


@pytest.fixture
def team(db: StoreFixture) -> Team:
    return Team(db)


@pytest.fixture
def few_messages_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (messages, fan_out, targets):
        monkeypatch.setattr(module, "MESSAGES_AN_HOUR", FEW)
    monkeypatch.setattr(fan_out, "_KEPT_FOR_OWN", FEW // 2)


@quick_on_sqlite
def test_each_change_of_a_job_is_told_to_its_owners_target(team: Team, approved: Approved) -> None:
    team.target()
    db, worker = team.db, team.db.worker()
    job_id = db.submit(max_restarts=1)
    db.end(db.running(job_id, worker), EndReason.USER_ERROR, "it broke")
    claim = db.running(job_id, worker)
    db.record(claim, seq=0, checkpoints=[checkpoint("a", step=1, val_loss=0.5)])
    db.record(claim, seq=1, checkpoints=[checkpoint("b", step=2, val_loss=0.7)])
    db.record(claim, seq=2, events=[NewEvent("message", {"level": "info", "text": "fine"}, 1)])
    warnings = [NewEvent("message", {"level": "warning", "text": text}, 1) for text in ("the loss is NaN", "again")]
    db.record(claim, seq=3, events=warnings)
    db.complete(claim)
    kinds = ["started", "requeued", "started", "best", "warning", "succeeded"]
    assert team.told() == [("ada", f"job.{kind}") for kind in kinds]
    bodies = [row.body["data"] for row in team.messages()]
    assert bodies[0]["title"] == "job script runs"
    assert bodies[1]["text"] == approved("text")
    assert bodies[3]["text"] == "val/loss 0.5 at step 1"
    assert (bodies[4]["text"], bodies[4]["more"]) == ("the loss is NaN", 1)
    assert {body["job"]["id"] for body in bodies} == {job_id}


@quick_on_sqlite
def test_a_trial_that_waits_for_its_promotion_is_not_told_as_paused(team: Team) -> None:
    team.target()
    db, worker = team.db, team.db.worker()
    job_id = db.submit()
    db.pause_at(job_id, epochs=1)
    db.end(db.running(job_id, worker), EndReason.PAUSED, asked=False)
    db.promote(job_id)
    claim = db.running(job_id, worker)
    db.pause(job_id)
    db.end(claim, EndReason.PAUSED)
    assert team.told() == [("ada", f"job.{kind}") for kind in ("started", "started", "paused")]


def test_nothing_is_stored_if_nobody_wants_to_know(team: Team) -> None:
    team.target("eve")
    team.target("ada", kinds=DEFAULT_ON)
    team.target("root", scope="all", kinds=[EventKind.WORKER_LOST])
    team.cancelled(visibility="team")
    assert team.db.everything()["signals"] == []


def test_a_private_job_is_told_to_its_owner_alone(team: Team) -> None:
    team.target("ada")
    team.target("eve")
    team.target("root", "mine")
    team.target("root", "all", scope="all")
    team.cancelled()
    assert team.told() == [("ada", "job.cancelled")]
    team.cancelled(visibility="team")
    assert team.told()[1:] == [("ada", "job.cancelled"), ("root", "job.cancelled")]


@pytest.mark.parametrize("first", ["team", "private"])
def test_a_job_that_was_private_at_any_time_meanwhile_is_told_to_its_owner_alone(team: Team, first: str) -> None:
    team.target("ada")
    team.target("root", scope="all")
    job_id = team.cancelled(visibility=first)
    patch = JobPatch(visibility="private" if first == "team" else "team")
    team.db.write(lambda session: edits.change(session, job_id, patch))
    assert team.told() == [("ada", "job.cancelled")]


@quick_on_sqlite
def test_who_is_disabled_or_no_administrator_any_more_is_told_nothing(team: Team) -> None:
    team.target("ada")
    team.target("root", scope="all")
    team.cancelled(visibility="team")
    assert len(team.told()) == 2
    team.db.write(lambda session: users.change(session, "root", role=Role.MEMBER, caller=SERVICE))
    team.db.write(lambda session: users.change(session, "ada", disabled=True, caller=SERVICE))
    team.cancelled(visibility="team")
    assert len(team.told()) == 2
    assert team.claim() == []
    assert not read(team.store, deliver.has_due), "a controller would write in vain, again and again"
    team.db.write(lambda session: users.change(session, "ada", disabled=False, caller=SERVICE))
    assert read(team.store, deliver.has_due)
    assert [message.target.owner for message in team.claim()] == ["ada"]


@quick_on_sqlite
def test_a_job_names_targets(team: Team) -> None:
    team.target(name="all")
    team.target(name="chosen", jobs="named")
    team.target(name="quiet", kinds=[EventKind.JOB_FAILED])

    def told(**notify: Any) -> list[str]:
        before = {row.id for row in team.messages()}
        spec: dict[str, Any] = {"notify": notify} if notify else {}
        team.cancelled(**spec)
        team.fan_out()
        names = {row.id: row.name for row in read(team.store, targets.list_targets, "ada")}
        return sorted(names[row.target_id] for row in team.messages() if row.id not in before)

    assert told() == ["all"]
    assert told(targets=["chosen"]) == ["all", "chosen"]
    assert told(targets=["chosen"], on=["job.failed"]) == ["all"]
    assert told(targets=["all", "chosen"], on=["job.failed"]) == []
    assert told(targets=["quiet"], on=["job.cancelled"]) == ["all", "quiet"]


def test_a_kind_that_only_the_job_asks_for_is_told(team: Team) -> None:
    team.target(name="quiet", kinds=[EventKind.JOB_FAILED])
    team.cancelled(notify={"targets": ["quiet"], "on": ["job.cancelled"]})
    assert team.told() == [("ada", "job.cancelled")]


def test_a_spec_that_names_another_target_is_refused(team: Team) -> None:
    team.target("eve", "hers")
    spec = team.db.spec(notify={"targets": ["hers"]})
    with pytest.raises(InvalidSpec) as refused:
        team.db.read(lambda session: targets.check(session, "ada", spec))
    assert refused.value.errors[0].field == "notify.targets.0"
    team.db.read(lambda session: targets.check(session, "eve", spec))


def test_a_lost_worker_is_told_to_administrators_once(team: Team) -> None:
    team.target("ada")
    team.target("root", scope="all")
    team.target("root", "own")
    db, worker = team.db, team.db.worker()
    for device in ("slot-0", "slot-1"):
        claim = db.running(db.submit(), worker, device)
        db.expire(claim)
        db.rescue(claim)
    assert team.told() == [("root", "worker.lost"), *[("ada", kind) for kind in ("job.started", "job.requeued") * 2]]


def test_messages_have_no_traceback_and_no_control_characters(team: Team) -> None:
    team.target()
    db = team.db
    job_id = db.submit(max_restarts=0, env={"TOKEN": "hunter2"})
    message = (
        f"rank 0 raised\nTraceback (most recent call last):\n  in secret.py\n\x1b[31mbad\x00\u202e loss{'x' * 999}"
    )
    db.end(db.running(job_id, db.worker()), EndReason.DATA_ERROR, message)
    team.fan_out()
    (written,) = [str(row.body) for row in team.messages() if row.kind == "job.failed"]
    (text,) = [row.body["data"]["text"] for row in team.messages() if row.kind == "job.failed"]
    assert [word for word in ("\\x1b", "Traceback", "hunter2", "secret.py") if word in written] == []
    assert text.isprintable()
    assert len(text) <= 300


@pytest.mark.usefixtures("few_messages_an_hour")
@quick_on_sqlite
def test_as_many_messages_an_hour_as_the_limit_and_then_one_digest(team: Team) -> None:
    team.target()
    for _ in range(FEW + 5):
        team.cancelled()
    told = team.told()
    assert told == [("ada", "job.cancelled")] * FEW + [("ada", "digest")]
    digest = team.messages()[-1]
    assert digest.body["data"]["kinds"] == {"job.cancelled": 5}
    team.cancelled()
    assert len(team.told()) == FEW + 1
    assert team.messages()[-1].body["data"]["count"] == 6
    assert team.messages()[-1].id == digest.id
    with pytest.raises(TooManyRequests):
        write(team.store, targets.send_test, digest.target_id, owner="ada", caller=SERVICE)


@pytest.mark.usefixtures("few_messages_an_hour")
@quick_on_sqlite
def test_removing_a_target_does_not_make_room_for_more(team: Team) -> None:
    old = team.target()
    for _ in range(FEW):
        team.cancelled()
    team.fan_out()
    write(team.store, targets.remove, old.id, owner="ada", caller=SERVICE)
    new = team.target()
    team.cancelled()
    assert team.told()[-1] == ("ada", "digest")
    assert team.messages()[-1].target_id == new.id
    assert team.claim() == []
    assert {row.error for row in team.messages()[:-1]} == {"the target was removed"}


@pytest.mark.usefixtures("few_messages_an_hour")
@quick_on_sqlite
def test_the_hour_is_one_for_all_targets_of_a_user(team: Team) -> None:
    for number in range(3):
        team.target(name=f"hook-{number}")
    for _ in range(FEW // 3 + 1):
        team.cancelled()
    kinds = [kind for _, kind in team.told()]
    assert (kinds.count("job.cancelled"), kinds.count("digest")) == (FEW, 3)


@pytest.mark.usefixtures("few_messages_an_hour")
@quick_on_sqlite
def test_after_an_hour_the_digest_is_sent_and_messages_follow_again(team: Team) -> None:
    team.target()
    for _ in range(FEW + 1):
        team.cancelled()
    team.fan_out()
    for _ in range(FEW):
        (message,) = team.claim()
        write(team.store, deliver.mark_delivered, message.id)
    assert team.claim() == []
    team.age(timedelta(hours=1, seconds=1))
    assert [message.kind for message in team.claim()] == ["digest"]
    team.cancelled()
    assert team.told()[-1] == ("ada", "job.cancelled")


@pytest.mark.usefixtures("few_messages_an_hour")
def test_fan_outs_at_once_tell_each_target_once_and_count_exactly(team: Team) -> None:
    team.target(name="one")
    team.target(name="two")
    team.target("root", scope="all")
    for _ in range(FEW):
        team.cancelled(visibility="team")
    assert [error for error in run_together(*[team.fan_out] * 4) if error is not None] == []
    team.fan_out()
    rows = [row for row in team.messages() if row.kind == "job.cancelled"]
    assert [row.owner for row in rows].count("ada") == FEW
    assert [row.owner for row in rows].count("root") == FEW // 2
    assert len({(row.target_id, row.subject) for row in rows}) == len(rows)
    digests = [row.body["data"]["count"] for row in team.messages() if row.kind == "digest"]
    assert sum(digests) == FEW + FEW // 2


@quick_on_sqlite
def test_of_one_target_one_message_is_on_its_way_and_users_take_turns(team: Team) -> None:
    for number in range(6):
        team.target(name=f"hook-{number}")
    team.cancelled()
    team.cancelled()
    team.target("eve")
    team.cancelled("eve")
    team.fan_out()
    assert [message.target.owner for message in team.claim(2)] == ["ada", "eve"]
    assert [message.target.owner for message in team.claim()] == ["ada"] * 3
    assert team.claim() == []


def test_claims_at_once_never_have_the_same_message(team: Team) -> None:
    for number in range(4):
        team.target(name=f"hook-{number}")
    team.target("eve")
    team.cancelled()
    team.cancelled("eve")
    team.fan_out()
    claimed = [each.id for some in run_together(*[team.claim] * 4) if isinstance(some, list) for each in some]
    assert len(claimed) == len(set(claimed))
    assert sorted([*claimed, *(each.id for each in team.claim())]) == [row.id for row in team.messages()]


def test_a_message_whose_sender_was_lost_is_claimed_again_with_its_id(team: Team) -> None:
    team.target()
    team.cancelled()
    team.fan_out()
    (first,) = team.claim()
    assert team.claim() == []
    team.age(timedelta(minutes=2))
    (again,) = team.claim()
    assert (again.id, again.body, again.attempts) == (first.id, first.body, 2)
    assert again.target.address == "https://example.com/x?key=hidden"
    assert (again.target.secret or "").startswith("whsec_")


def test_a_failure_is_told_with_the_target_and_a_delivery_is_final(team: Team) -> None:
    target = team.target()
    team.cancelled()
    team.fan_out()
    (message,) = team.claim()
    write(team.store, deliver.mark_failed, message.id, "it answered\n500", again_in_s=3600)
    shown = read(team.store, targets.find, target.id, owner="ada")
    assert (shown.error, shown.waiting, shown.given_up) == ("it answered 500", 1, 0)
    assert team.claim() == []
    team.age(timedelta(hours=2))
    (message,) = team.claim()
    write(team.store, deliver.mark_delivered, message.id)
    write(team.store, deliver.mark_failed, message.id, "too late", again_in_s=1)
    shown = read(team.store, targets.find, target.id, owner="ada")
    assert (shown.waiting, shown.given_up) == (0, 0)
    assert team.claim() == []


def test_a_message_that_is_given_up_is_counted(team: Team) -> None:
    target = team.target()
    team.cancelled()
    team.fan_out()
    (message,) = team.claim()
    write(team.store, deliver.mark_failed, message.id, "gone", again_in_s=None)
    shown = read(team.store, targets.find, target.id, owner="ada")
    assert (shown.error, shown.waiting, shown.given_up) == ("gone", 0, 1)
    listed = read(team.store, messages.list_messages, "ada", target_id=None, limit=10, before=None)
    assert [(row.id, row.target, row.error, row.next_at) for row in listed.items] == [
        (message.id, "hook", "gone", None)
    ]
    assert read(team.store, messages.list_messages, "eve", target_id=target.id, limit=10, before=None).items == []


def test_old_messages_are_given_up_and_then_deleted(team: Team, approved: Approved) -> None:
    team.target()
    team.cancelled()
    team.fan_out()
    team.age(timedelta(hours=47))
    write(team.store, deliver.clean)
    assert [row.error for row in team.messages()] == [None]
    team.age(timedelta(hours=2))
    write(team.store, deliver.clean)
    assert [(row.error, row.next_at) for row in team.messages()] == [(approved("text"), None)]
    team.age(timedelta(days=6))
    write(team.store, deliver.clean)
    assert team.messages() == []


def test_a_target_is_its_owners_and_its_address_is_stored_sealed(team: Team) -> None:
    target = team.target()
    assert target.address == "https://example.com/…"
    assert "hidden" not in str(team.db.everything())
    assert "whsec_" not in str(team.db.everything())
    for act in (
        lambda: read(team.store, targets.find, target.id, owner="eve"),
        lambda: write(team.store, targets.change, target.id, TargetChange(jobs="named"), owner="eve", caller=SERVICE),
        lambda: write(team.store, targets.remove, target.id, owner="eve", caller=SERVICE),
        lambda: write(team.store, targets.send_test, target.id, owner="eve", caller=SERVICE),
        lambda: read(team.store, targets.find, "ntf_1", owner=None),
    ):
        with pytest.raises(NotFound):
            act()
    changed = write(team.store, targets.change, target.id, TargetChange(jobs="named"), owner="ada", caller=SERVICE)
    assert (changed.jobs, changed.on) == ("named", target.on)


def test_a_target_that_cannot_be_decrypted_says_so_and_delays_nobody(team: Team) -> None:
    target = team.target()
    team.target("eve")
    team.cancelled()
    team.cancelled("eve")
    team.fan_out()
    team.store.secret_keys = SecretKeys(random.token_hex(32), Path("/nowhere"))
    assert team.claim() == []
    shown = read(team.store, targets.find, target.id, owner="ada")
    assert "which this program lacks" in (shown.error or "")
    assert shown.waiting == 1


def test_a_user_has_so_many_targets_at_most_and_each_name_once(team: Team, approved: Approved) -> None:
    names = [f"hook-{number}" for number in range(MOST_TARGETS - 1)]
    for name in names:
        team.target(name=name)
    with pytest.raises(Conflict) as raised:
        team.target(name="hook-0")
    assert str(raised.value) == approved("message")
    results = run_together(*(partial(team.target, name=f"last-{number}") for number in range(3)))
    assert sum(isinstance(result, Conflict) for result in results) == 2
    team.target("eve", "hook-0")


@quick_on_sqlite
def test_more_signals_than_anybody_makes_are_dropped(team: Team) -> None:
    team.target()
    team.target("eve")
    team.cancelled()

    def multiply(session: Session) -> None:
        first = session.execute(select(Base.metadata.tables["signals"])).mappings().one()
        copies: list[dict[Any, Any]] = [{**first, "id": -number} for number in range(1, signals.MOST_WAITING)]
        session.execute(insert(Signal), copies)

    team.db.write(multiply)
    team.cancelled()
    team.cancelled("eve")
    assert list(read(team.store, signals.waiting_owners)) == ["ada", "eve"]
    waiting = team.db.read(lambda session: session.scalars(select(Signal.owner)).all())
    assert (waiting.count("ada"), waiting.count("eve")) == (signals.MOST_WAITING, 1)


def test_a_rotation_of_the_keys_seals_targets_again(team: Team) -> None:
    team.target()
    team.cancelled()
    team.fan_out()
    new = random.token_hex(32)
    team.store.secret_keys = SecretKeys(f"{new},{KEY}", Path("/nowhere"))
    assert write(team.store, secrets.rotate, team.store.secret_keys, caller=SERVICE) == 1
    team.store.secret_keys = SecretKeys(new, Path("/nowhere"))
    assert [message.target.address for message in team.claim()] == ["https://example.com/x?key=hidden"]


@quick_on_sqlite
def test_the_flood_of_one_user_delays_another_by_one_batch_at_most(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.notifications.deliver._SIGNALS_AT_ONCE", 5)
    team.target()
    team.target("eve")
    for _ in range(20):
        team.cancelled()
    team.cancelled("eve")
    assert FanOut(team.store).run()
    kinds = [row.owner for row in team.messages()]
    assert (kinds.count("ada"), kinds.count("eve")) == (5, 1)


def test_a_change_of_state_without_a_target_takes_no_statement_more(team: Team) -> None:
    team.target("eve")
    job_id = team.db.submit()
    with recorded_statements(team.db.database) as statements:
        team.db.cancel(job_id)
    assert [one for one in statements if "INTO signals" in one] == []
    with recorded_statements(team.db.database) as statements:
        team.cancelled("eve")
    assert len([one for one in statements if "INTO signals" in one]) == 1


@pytest.mark.usefixtures("few_messages_an_hour")
@quick_on_sqlite
def test_the_flood_of_a_user_leaves_an_administrator_room_for_their_own_jobs_and_lost_workers(team: Team) -> None:
    team.target("root", scope="all")
    for _ in range(FEW):
        team.cancelled("eve", visibility="team")
    team.fan_out()
    team.cancelled("root")
    claim = team.db.running(team.db.submit(owner="ada"), team.db.worker())
    team.db.expire(claim)
    team.db.rescue(claim)
    kinds = [kind for _, kind in team.told()]
    assert (kinds.count("digest"), kinds.count("worker.lost")) == (1, 1)
    assert kinds.count("job.cancelled") == FEW // 2 + 1
