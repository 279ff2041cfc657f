"""Changes of secrets. Each is one transaction, with its entry of the audit. All of them raise Unavailable."""

from store.notifications import targets
from store.store import Store
from store.team import audit, secrets
from store.team.callers import Caller
from store.team.facts import SecretFacts


def put(store: Store, name: str, value: str, *, caller: Caller) -> SecretFacts:
    """Stores a secret of the caller, and returns it. Raises Conflict if there are too many, and ConfigError."""
    with store.write("team") as session:
        stored = secrets.put(session, store.secret_keys, caller.name, name, value)
        audit.add(session, caller, "secret.set", name)
        return stored


def remove(store: Store, name: str, *, caller: Caller) -> None:
    """Removes a secret of the caller. Raises NotFound."""
    with store.write("team") as session:
        secrets.remove(session, caller.name, name)
        audit.add(session, caller, "secret.delete", name)


def rotate(store: Store, *, caller: Caller) -> int:
    """Encrypts every secret with the first key, and each target's, and returns how many had another.

    Raises ConfigError.
    """
    keys = store.secret_keys
    with store.write("team") as session:
        rows = secrets.encrypted_otherwise(session, keys.current_id)
        for row in rows:
            value = keys.decrypt(row.value, key_id=row.key_id, owner=row.owner, name=row.name)
            row.value, row.key_id = keys.encrypt(value, owner=row.owner, name=row.name), keys.current_id
        sealed = targets.encrypted_otherwise(session, keys.current_id)
        for target in sealed:
            targets.seal_again(target, keys)
        count = len(rows) + len(sealed)
        audit.add(session, caller, "secrets.rotate", f"{count} secrets to key {keys.current_id}")
        return count
