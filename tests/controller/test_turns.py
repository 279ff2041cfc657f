"""Owners take turns at the controller, whatever number of sweeps each has."""

from controller.sweeps.duty import Turns
from store.sweeps.facts import DueSweep
from torchyard.contract.sweeps.spec import SweepState


def due(owner: str, *numbers: int) -> list[DueSweep]:
    return [
        DueSweep(
            id=f"swp_{owner}{number}",
            owner=owner,
            method="grid",
            mode="min",
            state=SweepState.RUNNING,
            version=1,
            asked=None,
            total=1,
            made=0,
            active=0,
            open=0,
            failed=0,
        )
        for number in numbers
    ]


def names(found: list[DueSweep]) -> list[str]:
    return [each.id.removeprefix("swp_") for each in found]


def test_each_owner_has_one_turn_before_any_has_two() -> None:
    turns, sweeps = Turns(), [*due("ada", 1, 2, 3), *due("bob", 1)]
    assert names(turns.order(sweeps)) == ["ada1", "bob1", "ada2", "ada3"]


def test_a_pass_that_is_cut_off_goes_on_with_who_had_no_turn() -> None:
    turns, sweeps = Turns(), [*due("ada", 1, 2, 3), *due("bob", 1), *due("eve", 1, 2)]
    seen: list[str] = []
    for _ in range(6):
        first = turns.order(sweeps)[0]
        turns.had(first)
        seen.append(first.id.removeprefix("swp_"))
    assert seen == ["ada1", "bob1", "eve1", "ada2", "bob1", "eve2"]


def test_a_round_ends_when_all_had_a_turn() -> None:
    turns, sweeps = Turns(), [*due("ada", 1, 2)]
    for _ in range(2):
        turns.had(sweeps[0])
        assert not turns.all_had(sweeps)
        turns.had(sweeps[1])
        assert turns.all_had(sweeps)
