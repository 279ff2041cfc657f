"""Secrets at rest: who can read them, with which key, and from where."""

from functools import partial
from pathlib import Path
import secrets as random

import pytest

from store.secret_keys import SecretKeys
from store.store import Store
from store.tables import Job
from store.team import secrets, users
from store.team.callers import SERVICE, Caller
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from tests.sessions import write
from tests.store.fixture import StoreFixture, run_together, store_on
from torchyard.contract.errors import ConfigError, Conflict, InvalidSpec, NotFound
from torchyard.contract.team.roles import Role

ADA, EVE = Caller("ada", Role.MEMBER), Caller("eve", Role.MEMBER)


def new_key() -> str:
    return random.token_hex(32)


def with_keys(db: StoreFixture, *keys: str) -> Store:
    store = store_on(db.database)
    store.secret_keys = SecretKeys(",".join(keys), Path("/nowhere"))
    return store


def put(store: Store, name: str, value: str, caller: Caller = ADA) -> None:
    write(store, secrets.put, store.secret_keys, name, value, caller=caller)


def value_of(db: StoreFixture, keys: SecretKeys, name: str, owner: str = "ada") -> str:
    row = db.read(lambda session: secrets.named(session, owner, [name]))[name]
    return keys.decrypt(row.value, key_id=row.key_id, owner=owner, name=name)


def test_a_value_is_stored_encrypted_for_its_owner_and_name(db: StoreFixture) -> None:
    store = with_keys(db, new_key())
    put(store, "KEY", "the value")
    assert "the value" not in str(db.everything())
    assert value_of(db, store.secret_keys, "KEY") == "the value"
    put(store, "KEY", "another")
    assert value_of(db, store.secret_keys, "KEY") == "another"
    row = db.read(lambda session: secrets.named(session, "ada", ["KEY"]))["KEY"]
    for owner, name in (("eve", "KEY"), ("ada", "OTHER")):
        with pytest.raises(ConfigError, match="cannot be decrypted: set it again"):
            store.secret_keys.decrypt(row.value, key_id=row.key_id, owner=owner, name=name)
    with pytest.raises(ConfigError, match=r"was encrypted with key \w+, which this program lacks"):
        value_of(db, SecretKeys(new_key(), Path("/nowhere")), "KEY")


def test_a_user_has_their_own_secrets_alone(db: StoreFixture) -> None:
    store = with_keys(db, new_key())
    put(store, "KEY", "hers")
    put(store, "KEY", "other", EVE)
    assert value_of(db, store.secret_keys, "KEY") == "hers"
    write(store, secrets.remove, "KEY", caller=EVE)
    with pytest.raises(NotFound):
        write(store, secrets.remove, "KEY", caller=EVE)
    assert [row.name for row in db.read(lambda session: secrets.list_owned(session, "ada"))] == ["KEY"]
    spec = db.spec(env={"TOKEN": {"secret": "KEY"}})
    db.read(lambda session: secrets.check(session, "ada", spec))
    with pytest.raises(InvalidSpec):
        db.read(lambda session: secrets.check(session, "eve", spec))


@quick_on_sqlite
def test_a_user_has_a_hundred_secrets_at_most(db: StoreFixture) -> None:
    store = with_keys(db, new_key())
    for number in range(secrets.MAX_SECRETS):
        put(store, f"KEY_{number}", "value")
    with pytest.raises(Conflict, match="ada has 100 secrets"):
        put(store, "ONE_MORE", "value")
    put(store, "KEY_0", "a new value of one that there is")


def test_concurrent_requests_store_a_secret_once_and_not_too_many(
    db: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "MAX_SECRETS", 4)
    db.write(lambda session: users.add(session, "ada", Role.MEMBER, caller=SERVICE))
    store = with_keys(db, new_key())
    assert run_together(*(partial(put, store, "KEY", str(number)) for number in range(4))) == [None] * 4
    results = run_together(*(partial(put, store, f"KEY_{number}", "value") for number in range(4)))
    assert sorted(str(type(result).__name__) for result in results) == ["Conflict", "NoneType", "NoneType", "NoneType"]
    assert len(db.read(lambda session: secrets.list_owned(session, "ada"))) == 4


def test_a_rotation_encrypts_with_the_first_key(db: StoreFixture) -> None:
    old, new = new_key(), new_key()
    put(with_keys(db, old), "KEY", "value")
    put(with_keys(db, old), "KEY", "eves", EVE)
    both = with_keys(db, new, old)
    assert value_of(db, both.secret_keys, "KEY") == "value"
    assert write(both, secrets.rotate, both.secret_keys, caller=SERVICE) == 2
    assert write(both, secrets.rotate, both.secret_keys, caller=SERVICE) == 0
    only_new = with_keys(db, new)
    assert value_of(db, only_new.secret_keys, "KEY") == "value"
    assert value_of(db, only_new.secret_keys, "KEY", "eve") == "eves"
    other = with_keys(db, new_key())
    with pytest.raises(ConfigError):
        write(other, secrets.rotate, other.secret_keys, caller=SERVICE)


def test_the_key_file_is_made_once_and_for_its_owner_alone(tmp_path: Path, approved: Approved) -> None:
    file = tmp_path / "secret.key"
    ids = run_together(*(lambda: SecretKeys("", file).current_id for _ in range(8)))
    assert len(set(map(str, ids))) == 1
    assert len(str(ids[0])) == 16
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret.key"]
    file.chmod(0o640)
    with pytest.raises(ConfigError) as raised:
        _ = SecretKeys("", file).current_id
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


@pytest.mark.parametrize("written", ["x", "00" * 31, ",", "ü"])
def test_a_setting_that_is_no_key_is_refused(written: str) -> None:
    with pytest.raises(ConfigError, match="TORCHYARD_SECRET_KEY has"):
        _ = SecretKeys(written, Path("/nowhere")).current_id


def test_a_job_has_so_many_bytes_of_secrets_at_most(db: StoreFixture) -> None:
    store = with_keys(db, new_key())
    for name, value in (("A", "x" * 32_768), ("B", "é" * 16_384), ("C", "y")):
        put(store, name, value)
    env = {f"V{name}": {"secret": name} for name in "AB"} | {"AGAIN": {"secret": "A"}}
    db.read(lambda session: secrets.check(session, "ada", db.spec(env=env)))
    with pytest.raises(InvalidSpec) as raised:
        db.read(lambda session: secrets.check(session, "ada", db.spec(env=env | {"VC": {"secret": "C"}})))
    assert [(error.field, error.message) for error in raised.value.errors] == [
        ("env", "its secrets have 65537 bytes, and at most 65536")
    ]
    job = Job(owner="ada", spec={"env": env})
    assert db.read(lambda session: secrets.resolve(session, store.secret_keys, job)).problem is None
    put(store, "B", "é" * 16_384 + "z")
    found = db.read(lambda session: secrets.resolve(session, store.secret_keys, job))
    assert found.problem == "env: its secrets have 65537 bytes, and at most 65536"
