"""Targets of notifications: where users want to be told, and of what. Addresses and secrets are stored encrypted."""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import replace
import json
import secrets
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import ColumnElement, and_, case, exists, func, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from store.db import columns
from store.ids import is_id, new_id
from store.notifications.facts import Destination, NewTarget, TargetChange, TargetFacts
from store.secret_keys import SecretKeys
from store.tables import Message, NotificationTarget, User
from store.team import users
from store.team.callers import BOOTSTRAP
from torchyard.contract.errors import Conflict, FieldError, Forbidden, InvalidSpec, NotFound
from torchyard.contract.notifications import MOST_TARGETS, EventKind
from torchyard.contract.spec import Spec
from torchyard.contract.team import Role

_TOLD = columns.of(TargetFacts, NotificationTarget)


def add(session: Session, keys: SecretKeys, new: NewTarget) -> tuple[TargetFacts, str | None]:
    """Stores a target, and returns it with what its webhooks are signed with, which is told this once.

    Raises NotFound, Forbidden if the user may not be told of all, Conflict if the user has one of that name or too
    many, and ConfigError.
    """
    if new.owner != BOOTSTRAP and users.get(session, new.owner).role != Role.ADMIN and new.scope == "all":
        raise Forbidden(f"{new.owner} is no administrator, and may not be told of the jobs of others")
    users.lock(session, new.owner)  # the count below would miss what another request adds meanwhile
    query = select(func.count()).select_from(NotificationTarget).where(NotificationTarget.owner == new.owner)
    count = session.execute(query).scalar_one()
    if count >= MOST_TARGETS:
        raise Conflict(f"{new.owner} has {count} targets, and may have {MOST_TARGETS}: remove some first")
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
        raise Conflict(f"{new.owner} has a target {new.name} already") from None
    session.refresh(row)
    return columns.read(TargetFacts, row), secret


def list_of(session: Session, owner: str) -> Sequence[TargetFacts]:
    """Returns the user's targets by name, with how many messages wait and were given up."""
    query = select(*_TOLD).where(NotificationTarget.owner == owner).order_by(NotificationTarget.name)
    return _counted(session, [TargetFacts(*row) for row in session.execute(query)])


def get(session: Session, target_id: str, *, owner: str | None) -> TargetFacts:
    """Returns a target; with `owner`, only one of theirs. Raises NotFound."""
    return _counted(session, [columns.read(TargetFacts, _found(session, target_id, owner=owner))])[0]


def change(session: Session, target_id: str, wanted: TargetChange, *, owner: str | None) -> TargetFacts:
    """Changes what a target is told of. Raises NotFound."""
    row = _found(session, target_id, owner=owner, locked=True)
    if wanted.kinds is not None:
        row.kinds = kinds_text(wanted.kinds)
    if wanted.jobs is not None:
        row.jobs = wanted.jobs
    session.flush()
    return _counted(session, [columns.read(TargetFacts, row)])[0]


def remove(session: Session, target_id: str, *, owner: str | None) -> TargetFacts:
    """Removes a target. Call `messages.give_up_of` as well. Raises NotFound."""
    row = _found(session, target_id, owner=owner, locked=True)
    removed = columns.read(TargetFacts, row)
    session.delete(row)
    session.flush()
    return removed


def lock_of(session: Session, owner: str, *, team: bool = False) -> Sequence[NotificationTarget]:
    """Returns the targets of the owner, and with `team` those that are told of all, locked by their ids.

    Who makes messages for a user holds a target of theirs, so that messages are counted exactly. Without those of users
    who are disabled, or have `scope: all` and are no administrators any more.
    """
    concerned = NotificationTarget.owner == owner
    if team:
        concerned = or_(concerned, NotificationTarget.scope == "all")
    query = select(NotificationTarget).where(concerned, is_heard()).order_by(NotificationTarget.id)
    return session.scalars(query.with_for_update(of=NotificationTarget, key_share=True)).all()


def is_heard() -> ColumnElement[bool]:
    """Returns the condition that the target's user may be told now."""
    allowed = or_(NotificationTarget.scope == "own", User.role == Role.ADMIN)
    user = exists().where(User.name == NotificationTarget.owner, User.disabled_at.is_(None), allowed)
    return or_(NotificationTarget.owner == BOOTSTRAP, user)


def destination(row: NotificationTarget, keys: SecretKeys) -> Destination:
    """Returns where messages to the target go. Raises ConfigError if that cannot be decrypted."""
    opened = json.loads(keys.decrypt(row.sealed, key_id=row.key_id, owner=row.owner, name=row.id))
    return Destination(row.id, row.owner, row.name, row.kind, opened["address"], opened["secret"])


def seal_again(row: NotificationTarget, keys: SecretKeys) -> None:
    """Encrypts what the row holds with the first key. Raises ConfigError."""
    opened = keys.decrypt(row.sealed, key_id=row.key_id, owner=row.owner, name=row.id)
    row.sealed, row.key_id = keys.encrypt(opened, owner=row.owner, name=row.id), keys.current_id


def encrypted_otherwise(session: Session, key_id: str) -> Sequence[NotificationTarget]:
    """Returns the targets that another key has encrypted, locked until the transaction ends."""
    query = select(NotificationTarget).where(NotificationTarget.key_id != key_id).order_by(NotificationTarget.id)
    return session.scalars(query.with_for_update()).all()


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
        FieldError(f"notify.targets.{place}", f"{owner} has no target {name}: `torchyard notify add` makes one")
        for place, name in enumerate(spec.notify.targets)
        if name not in has
    )
    if errors:
        raise InvalidSpec("the job spec is not valid", errors=errors)


def kinds_text(kinds: Iterable[EventKind]) -> str:
    """Returns the kinds as one text, in which each stands between blanks."""
    return f" {' '.join(kind for kind in EventKind if kind in set(kinds))} "


def _found(session: Session, target_id: str, *, owner: str | None, locked: bool = False) -> NotificationTarget:
    query = select(NotificationTarget).where(NotificationTarget.id == target_id)
    if owner is not None:
        query = query.where(NotificationTarget.owner == owner)
    if locked:
        query = query.with_for_update().execution_options(populate_existing=True)
    row = session.scalars(query).first() if is_id(target_id, "ntf") else None
    if row is None:
        raise NotFound(f"there is no target {target_id[:100]!r}")
    return row


def _counted(session: Session, found: Sequence[TargetFacts]) -> list[TargetFacts]:
    waits = func.sum(case((Message.next_at.is_not(None), 1), else_=0))
    gone = and_(Message.next_at.is_(None), Message.delivered_at.is_(None))
    query = select(Message.target_id, waits, func.sum(case((gone, 1), else_=0)))
    query = query.where(Message.target_id.in_([each.id for each in found])).group_by(Message.target_id)
    counts = {target: (int(waiting), int(given_up)) for target, waiting, given_up in session.execute(query)}
    return [
        replace(each, waiting=waiting, given_up=given_up)
        for each in found
        for waiting, given_up in [counts.get(each.id, (0, 0))]
    ]


def _seal(keys: SecretKeys, target_id: str, owner: str, opened: dict[str, Any]) -> bytes:
    return keys.encrypt(json.dumps(opened), owner=owner, name=target_id)


def _new_secret() -> str:
    return f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"


def _shown(new: NewTarget) -> str:
    if new.kind == "mail":
        return new.address
    parts = urlsplit(new.address)
    return f"{parts.scheme}://{parts.netloc}/…"
