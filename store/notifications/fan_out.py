"""Makes messages of signals: one for each target that wants it, or a part of the target's digest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from store.announcement import announcement_of
from store.db.database import in_us, now_us
from store.notifications import messages, signals, targets
from store.tables import Job, Message, NotificationTarget, Signal, Sweep
from torchyard.contract.notifications.kinds import DIGEST, MESSAGES_AN_HOUR, EventKind

DIGEST_AFTER = timedelta(hours=1)
"""So long a digest collects messages from the first that is too many."""
_KEPT_FOR_OWN = MESSAGES_AN_HOUR // 2
"""Of an administrator's hour, what the jobs of others leave for their own and for lost workers."""
_LOST_AGAIN_US = in_us(timedelta(minutes=10))
"""A worker is lost once, however many of its attempts end within this time."""


def fan_out(session: Session, owner: str, *, most: int) -> bool:
    """Makes the messages of some signals of the owner, and removes them. Returns whether there may be more.

    Several may do it at once: each signal is taken by one. A private job notifies its owner's targets alone.
    """
    taken = signals.take(session, owner, most=most)
    if not taken:
        return False
    for_all = _list_for_all(session, taken)
    listening = targets.lock_heard(session, owner, team=bool(for_all))
    outbox = _Outbox(session)
    for signal in taken:
        body = messages.body_of_signal(signal)
        for target in listening:
            if _wants(target, signal, to_team=signal.id in for_all):
                outbox.add(target, signal, body)
    outbox.store()
    return len(taken) == most


def _list_for_all(session: Session, taken: Sequence[Signal]) -> set[int]:
    """Returns the ids of the signals for targets of all jobs: of what was shared when it happened, and is now."""
    shared = [signal for signal in taken if signal.visibility == "team"]
    subjects = {signal.subject for signal in shared}
    hidden = {
        subject
        for kind in (Job, Sweep)
        for subject in session.scalars(select(kind.id).where(kind.id.in_(subjects), kind.visibility != "team"))
    }
    return {signal.id for signal in shared if signal.subject not in hidden}


def _wants(target: NotificationTarget, signal: Signal, *, to_team: bool) -> bool:
    says_so = f" {signal.kind} " in target.kinds
    is_trial = "sweep_id" in signal.data.get("job", {})
    if target.owner != signal.owner:
        return to_team and target.scope == "all" and says_so and not is_trial
    notify: Mapping[str, Any] = signal.notify or {}
    if target.name in notify.get("targets", ()):
        on = notify.get("on")
        return says_so if on is None else signal.kind in on
    return target.jobs == "all" and says_so and not is_trial


@dataclass
class _Outbox:
    """The messages of one transaction."""

    session: Session
    room: dict[str, int] = field(default_factory=dict[str, int])
    """How many messages each user may still get in this hour."""
    digests: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict[str, tuple[str, dict[str, Any]]])
    """Ids and bodies of the digests that collect messages, by target."""
    seen: set[str] = field(default_factory=set[str])
    """Targets whose digest was looked for."""

    def add(self, target: NotificationTarget, signal: Signal, body: Mapping[str, Any]) -> None:
        """Stores a message for the target, or adds it to a digest."""
        if signal.kind == EventKind.WORKER_LOST and self._knows(target, signal):
            return
        if target.owner not in self.room:
            self.room[target.owner] = messages.count_room(self.session, target.owner)
        kept = 0 if signal.owner in {"", target.owner} else _KEPT_FOR_OWN
        if self.room[target.owner] > kept:
            self.room[target.owner] -= 1
            messages.add(self.session, target, kind=signal.kind, subject=signal.subject, body=body)
            announcement_of(self.session).wake_controller()
            return
        digest = self._digest(target)
        if digest is None:
            new = messages.empty_digest(time=signal.time)
            after = DIGEST_AFTER.total_seconds()
            digest = messages.add(self.session, target, kind=DIGEST, subject="", body=new, in_s=after), new
        self.digests[target.id] = digest[0], messages.add_to_digest(digest[1], body)

    def store(self) -> None:
        """Stores the digests as they are now."""
        for message_id, body in self.digests.values():
            messages.set_body(self.session, message_id, body)

    def _digest(self, target: NotificationTarget) -> tuple[str, dict[str, Any]] | None:
        if target.id not in self.seen:
            self.seen.add(target.id)
            digest = messages.open_digest(self.session, target)
            if digest is not None:
                self.digests[target.id] = digest
        return self.digests.get(target.id)

    def _knows(self, target: NotificationTarget, signal: Signal) -> bool:
        recent = and_(Message.subject == signal.subject, Message.created_at > now_us() - _LOST_AGAIN_US)
        earlier = select(Message.id).where(Message.target_id == target.id, Message.kind == signal.kind, recent)
        return self.session.execute(earlier.limit(1)).first() is not None
