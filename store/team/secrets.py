"""Secrets: values that jobs get in their environment. Rows hold only their encrypted form."""

from collections.abc import Collection, Iterable, Sequence
import re

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from store.attempts.facts import AttemptSecrets
from store.db import columns
from store.db.database import now_us
from store.secret_keys import SecretKeys, bytes_of
from store.tables import Job, NotificationTarget, Secret
from store.team import audit, users
from store.team.callers import Caller
from torchyard.contract.bounds import VARIABLE_NAME
from torchyard.contract.errors import ConfigError, Conflict, FieldError, InvalidSpec, NotFound
from torchyard.contract.spec.environment import MOST_SECRETS_BYTES
from torchyard.contract.spec.spec import Spec
from torchyard.contract.team.views import SecretView

MAX_SECRETS = 100
"""Of one user."""


def put(session: Session, keys: SecretKeys, name: str, value: str, *, caller: Caller) -> SecretView:
    """Stores a secret of the caller, or its new value. Raises Conflict if the user has too many, and ConfigError."""
    owner = caller.name
    users.lock(session, owner)  # the count below would miss what another request adds meanwhile
    row = session.get(Secret, (owner, name))
    if row is None:
        count = session.execute(select(func.count()).select_from(Secret).where(Secret.owner == owner)).scalar_one()
        if count >= MAX_SECRETS:
            raise Conflict(f"{owner} has {count} secrets; the maximum is {MAX_SECRETS}: delete some first")
        row = Secret(owner=owner, name=name)
        session.add(row)
    row.value, row.key_id = keys.encrypt(value, owner=owner, name=name), keys.current_id
    row.updated_at = now_us()
    session.flush()
    session.refresh(row)
    audit.add(session, caller, "secret.set", name)
    return columns.read(SecretView, row)


def remove(session: Session, name: str, *, caller: Caller) -> None:
    """Removes a secret of the caller. Raises NotFound."""
    owner = caller.name
    if re.fullmatch(VARIABLE_NAME, name) is None:
        raise NotFound(f"{owner} has no secret {name[:200]!r}")
    removed = session.execute(delete(Secret).where(Secret.owner == owner, Secret.name == name).returning(Secret.name))
    if removed.first() is None:
        raise NotFound(f"{owner} has no secret {name[:200]!r}")
    audit.add(session, caller, "secret.delete", name)


def rotate(session: Session, keys: SecretKeys, *, caller: Caller) -> int:
    """Encrypts every secret with the first key, and each target's, and returns how many had another.

    Raises ConfigError.
    """
    secrets = session.scalars(select(Secret).where(Secret.key_id != keys.current_id).with_for_update()).all()
    for row in secrets:
        value = keys.decrypt(row.value, key_id=row.key_id, owner=row.owner, name=row.name)
        row.value, row.key_id = keys.encrypt(value, owner=row.owner, name=row.name), keys.current_id
    others = select(NotificationTarget).where(NotificationTarget.key_id != keys.current_id)
    targets = session.scalars(others.order_by(NotificationTarget.id).with_for_update()).all()
    for target in targets:
        opened = keys.decrypt(target.sealed, key_id=target.key_id, owner=target.owner, name=target.id)
        target.sealed, target.key_id = keys.encrypt(opened, owner=target.owner, name=target.id), keys.current_id
    count = len(secrets) + len(targets)
    audit.add(session, caller, "secrets.rotate", f"{count} secrets to key {keys.current_id}")
    return count


def list_owned(session: Session, owner: str) -> Sequence[SecretView]:
    """Returns the user's secrets by name."""
    query = columns.select(SecretView, Secret).where(Secret.owner == owner).order_by(Secret.name)
    return columns.views(SecretView, session.execute(query))


def named(session: Session, owner: str, names: Collection[str]) -> dict[str, Secret]:
    """Returns those of `names` that the user has, by name."""
    if not names:
        return {}
    secrets = session.scalars(select(Secret).where(Secret.owner == owner, Secret.name.in_(names)))
    return {row.name: row for row in secrets}


def resolve(session: Session, keys: SecretKeys, job: Job) -> AttemptSecrets:
    """Decrypts the secrets that the job's spec names, as they are now."""
    wanted = {name: value["secret"] for name, value in job.spec.get("env", {}).items() if isinstance(value, dict)}
    rows = named(session, job.owner, set(wanted.values()))
    values: dict[str, str] = {}
    problems = [] if (message := _too_much(rows.values())) is None else [f"env: {message}"]
    for variable, name in wanted.items():
        row = rows.get(name)
        if row is None:
            problems.append(f"env.{variable}: {job.owner} has no secret {name} any more")
            continue
        try:
            values[variable] = keys.decrypt(row.value, key_id=row.key_id, owner=row.owner, name=name)
        except ConfigError as error:
            problems.append(f"env.{variable}: {error.message}")
    return AttemptSecrets(values, "; ".join(problems) or None)


def check(session: Session, owner: str, spec: Spec) -> None:
    """Raises InvalidSpec if the spec names a secret that its owner does not have, or too many bytes of them."""
    has = named(session, owner, set(spec.secrets.values()))
    errors = tuple(
        FieldError(f"env.{variable}", f"{owner} has no secret {name}: set it with `torchyard secrets set {name}`")
        for variable, name in spec.secrets.items()
        if name not in has
    )
    if (message := _too_much(has.values())) is not None:
        errors += (FieldError("env", message),)
    if errors:
        raise InvalidSpec("the job spec is not valid", errors=errors)


def key_ids(session: Session) -> Sequence[str]:
    """Returns the ids of the keys that have encrypted the secrets of all users."""
    return session.scalars(select(Secret.key_id).distinct().order_by(Secret.key_id)).all()


def _too_much(named: Iterable[Secret]) -> str | None:
    """Returns what is wrong with the secrets of a job, or None."""
    size = sum(bytes_of(row.value) for row in named)
    return None if size <= MOST_SECRETS_BYTES else f"its secrets have {size} bytes, and at most {MOST_SECRETS_BYTES}"
