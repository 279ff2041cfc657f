"""For whom the service acts without a request: the owner as they are now, or nobody."""

import pytest

from store.team import users
from store.team.callers import SERVICE, Caller
from tests.approved import Approved
from tests.store.fixture import StoreFixture
from torchyard.contract.errors import OwnerDisabled
from torchyard.contract.team.roles import Role


@pytest.fixture
def team(db: StoreFixture) -> StoreFixture:
    db.write(lambda session: users.add(session, "ada", Role.MEMBER, caller=SERVICE))
    return db


def acting(db: StoreFixture, owner: str) -> Caller:
    return db.read(lambda session: users.act_for(session, owner))


def test_the_owner_acts_with_the_role_of_now(team: StoreFixture) -> None:
    assert acting(team, "ada") == Caller("ada", Role.MEMBER)
    team.write(lambda session: users.change(session, "ada", role=Role.OPERATOR, caller=SERVICE))
    assert acting(team, "ada") == Caller("ada", Role.OPERATOR)


def test_the_bootstrap_administrator_always_acts(db: StoreFixture) -> None:
    assert acting(db, "admin") == SERVICE


def test_who_may_submit_no_job_does_not_act(team: StoreFixture, approved: Approved) -> None:
    team.write(lambda session: users.change(session, "ada", disabled=True, caller=SERVICE))
    with pytest.raises(OwnerDisabled) as raised:
        acting(team, "ada")
    assert str(raised.value) == approved("message")
    team.write(lambda session: users.change(session, "ada", disabled=False, role=Role.VIEWER, caller=SERVICE))
    with pytest.raises(OwnerDisabled) as raised:
        acting(team, "ada")
    assert str(raised.value) == approved("user ada viewer")
    team.write(lambda session: users.change(session, "ada", role=Role.MEMBER, caller=SERVICE))
    assert acting(team, "ada").role is Role.MEMBER


def test_nobody_acts_for_a_user_who_is_not_there(db: StoreFixture, approved: Approved) -> None:
    with pytest.raises(OwnerDisabled) as raised:
        acting(db, "eve")
    assert str(raised.value) == approved("message")
