"""Targets of notifications: where users want to be notified, and of what. Addresses and secrets are encrypted."""

import base64
from collections.abc import Iterable, Sequence
import json
import secrets
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import ColumnElement, and_, case, exists, func, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from store.announcement import announcement_of
from store.db.columns import to_time
from store.ids import is_id, new_id
from store.notifications import messages
from store.notifications.facts import Destination, NewTarget, TargetChange
from store.secret_keys import SecretKeys
from store.tables import Message, NotificationTarget, User
from store.team import audit, users
from store.team.callers import BOOTSTRAP, Caller
from torchyard.contract.errors import Conflict, FieldError, Forbidden, InvalidSpec, NotFound, TooManyRequests
from torchyard.contract.notifications.kinds import MESSAGES_AN_HOUR, MOST_TARGETS, EventKind
from torchyard.contract.notifications.views import MessageView, TargetView
from torchyard.contract.spec.spec import Spec
from torchyard.contract.team.roles import Role


def add(session: Session, keys: SecretKeys, new: NewTarget, *, caller: Caller) -> tuple[TargetView, str | None]:
    """Stores a target, and returns it with what its webhooks are signed with, which is returned this once.

    Raises NotFound, Forbidden if the user may not be notified of all, Conflict if the user has one of that name or too
    many, and ConfigError.
    """
    if new.owner != BOOTSTRAP and users.find(session, new.owner).role != Role.ADMIN and new.scope == "all":
        raise Forbidden(f"{new.owner} is not an administrator: only administrators get notifications of others' jobs")
    users.lock(session, new.owner)  # the count below would miss what another request adds meanwhile
    query = select(func.count()).select_from(NotificationTarget).where(NotificationTarget.owner == new.owner)
    count = session.execute(query).scalar_one()
    if count >= MOST_TARGETS:
        raise Conflict(
            f"{new.owner} has {count} notification channels; the maximum is {MOST_TARGETS}: delete some first"
        )
    target_id, secret = new_id("ntf"), _new_secret() if new.kind == "webhook" else None
    row = NotificationTarget(
        id=target_id,
        owner=new.owner,
        name=new.name,
        kind=new.kind,
        shown=_shown(new),
        sealed=_seal(keys, target_id, new.owner, {"address": new.address, "secret": secret}),
        key_id=keys.current_id,
        kinds=kinds_text(new.kinds),
        jobs=new.jobs,
        scope=new.scope,
    )
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        raise Conflict(f"{new.owner} already has a notification channel {new.name}") from None
    session.refresh(row)
    audit.add(session, caller, "target.add", f"{row.id} of {new.owner}: {new.kind} {row.shown}")
    return _view(row), secret


def list_targets(session: Session, owner: str) -> Sequence[TargetView]:
    """Returns the user's targets by name, with how many messages wait and were given up."""
    query = select(NotificationTarget).where(NotificationTarget.owner == owner).order_by(NotificationTarget.name)
    return _views(session, session.scalars(query).all())


def find(session: Session, target_id: str, *, owner: str | None) -> TargetView:
    """Returns a target; with `owner`, only one of theirs. Raises NotFound."""
    return _views(session, [_find_row(session, target_id, owner=owner)])[0]


def change(session: Session, target_id: str, wanted: TargetChange, *, owner: str | None, caller: Caller) -> TargetView:
    """Changes what a target is notified of; with `owner`, only one of theirs. Raises NotFound."""
    row = _find_row(session, target_id, owner=owner, locked=True)
    if wanted.kinds is not None:
        row.kinds = kinds_text(wanted.kinds)
    if wanted.jobs is not None:
        row.jobs = wanted.jobs
    session.flush()
    audit.add(session, caller, "target.change", f"{target_id} of {row.owner}")
    return _views(session, [row])[0]


def remove(session: Session, target_id: str, *, owner: str | None, caller: Caller) -> None:
    """Removes a target, and gives up what waits for it; with `owner`, only one of theirs. Raises NotFound."""
    row = _find_row(session, target_id, owner=owner, locked=True)
    whose = row.owner
    session.delete(row)
    session.flush()
    messages.give_up_target(session, target_id, why="the target was removed")
    audit.add(session, caller, "target.remove", f"{target_id} of {whose}")


def send_test(session: Session, target_id: str, *, owner: str | None, caller: Caller) -> MessageView:
    """Stores a test message for a target. It counts towards the messages that the target's user may get in an hour.

    Raises NotFound, Conflict if that user may not be notified, and TooManyRequests.
    """
    whose = _find_row(session, target_id, owner=owner).owner
    row = next((row for row in lock_heard(session, whose) if row.id == target_id), None)
    if row is None:
        raise Conflict(f"{whose} is disabled or not an administrator: this channel gets no messages")
    if not messages.count_room(session, whose):
        raise TooManyRequests(f"{whose} got {MESSAGES_AN_HOUR} messages within an hour; try again later")
    message = messages.add_test(session, row)
    audit.add(session, caller, "target.test", f"{target_id} of {whose}")
    announcement_of(session).wake_controller()
    return message


def lock_heard(session: Session, owner: str, *, team: bool = False) -> Sequence[NotificationTarget]:
    """Returns the targets of the owner, and with `team` those that are notified of all, locked by their ids.

    Who makes messages for a user holds a target of theirs, so that messages are counted exactly. Without those of users
    who are disabled, or have `scope: all` and are no administrators any more.
    """
    concerned = NotificationTarget.owner == owner
    if team:
        concerned = or_(concerned, NotificationTarget.scope == "all")
    query = select(NotificationTarget).where(concerned, is_heard()).order_by(NotificationTarget.id)
    return session.scalars(query.with_for_update(of=NotificationTarget, key_share=True)).all()


def is_heard() -> ColumnElement[bool]:
    """Returns the condition that the target's user may be notified now."""
    allowed = or_(NotificationTarget.scope == "own", User.role == Role.ADMIN)
    user = exists().where(User.name == NotificationTarget.owner, User.disabled_at.is_(None), allowed)
    return or_(NotificationTarget.owner == BOOTSTRAP, user)


def read_destination(row: NotificationTarget, keys: SecretKeys) -> Destination:
    """Returns where messages to the target go. Raises ConfigError if that cannot be decrypted."""
    opened = json.loads(keys.decrypt(row.sealed, key_id=row.key_id, owner=row.owner, name=row.id))
    return Destination(row.id, row.owner, row.name, row.kind, opened["address"], opened["secret"])


def key_ids(session: Session) -> Sequence[str]:
    """Returns the ids of the keys that have encrypted the targets of all users."""
    return session.scalars(select(NotificationTarget.key_id).distinct().order_by(NotificationTarget.key_id)).all()


def check(session: Session, owner: str, spec: Spec) -> None:
    """Raises InvalidSpec if the spec names a target that its owner does not have."""
    if spec.notify is None:
        return
    names = select(NotificationTarget.name).where(NotificationTarget.owner == owner)
    has = set(session.scalars(names.where(NotificationTarget.name.in_(spec.notify.targets))))
    errors = tuple(
        FieldError(f"notify.targets.{index}", f"{owner} has no target {name}: `torchyard notifications add` makes one")
        for index, name in enumerate(spec.notify.targets)
        if name not in has
    )
    if errors:
        raise InvalidSpec("the job spec is not valid", errors=errors)


def kinds_text(kinds: Iterable[EventKind]) -> str:
    """Returns the kinds as one text, in which each stands between blanks."""
    return f" {' '.join(kind for kind in EventKind if kind in set(kinds))} "


def _find_row(session: Session, target_id: str, *, owner: str | None, locked: bool = False) -> NotificationTarget:
    query = select(NotificationTarget).where(NotificationTarget.id == target_id)
    if owner is not None:
        query = query.where(NotificationTarget.owner == owner)
    if locked:
        query = query.with_for_update().execution_options(populate_existing=True)
    row = session.scalars(query).first() if is_id(target_id, "ntf") else None
    if row is None:
        raise NotFound(f"there is no notification channel {target_id[:100]!r}")
    return row


def _views(session: Session, rows: Sequence[NotificationTarget]) -> list[TargetView]:
    """Returns the views of targets, with how many messages wait and were given up."""
    waits = func.sum(case((Message.next_at.is_not(None), 1), else_=0))
    gone = and_(Message.next_at.is_(None), Message.delivered_at.is_(None))
    query = select(Message.target_id, waits, func.sum(case((gone, 1), else_=0)))
    query = query.where(Message.target_id.in_([row.id for row in rows])).group_by(Message.target_id)
    counts = {target: (int(waiting), int(given_up)) for target, waiting, given_up in session.execute(query)}
    return [_view(row, *counts.get(row.id, (0, 0))) for row in rows]


def _view(row: NotificationTarget, waiting: int = 0, given_up: int = 0) -> TargetView:
    same = {name: getattr(row, name) for name in ("id", "owner", "name", "kind", "jobs", "scope", "error")}
    times = {name: getattr(row, name) for name in ("created_at", "delivered_at", "failed_at")}
    times = {name: None if time is None else to_time(time) for name, time in times.items()}
    counts = {"waiting": waiting, "given_up": given_up}
    return TargetView.model_validate({**same, **times, **counts, "address": row.shown, "on": row.kinds.split()})


def _seal(keys: SecretKeys, target_id: str, owner: str, opened: dict[str, Any]) -> bytes:
    return keys.encrypt(json.dumps(opened), owner=owner, name=target_id)


def _new_secret() -> str:
    return f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"


def _shown(new: NewTarget) -> str:
    if new.kind == "mail":
        return new.address
    parts = urlsplit(new.address)
    return f"{parts.scheme}://{parts.netloc}/…"
