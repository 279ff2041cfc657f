"""Points are found by a process of their own: what it takes is bounded, and nobody else waits for it."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
import signal
import time

from pydantic import JsonValue
import pytest

from controller.sweeps import proposals, sampling
from controller.sweeps.proposals import Proposals
from store.store import Store
from store.sweeps import requests
from tests.controller.test_sweeps import ADA, BOB, Yard
from tests.sessions import write
from tests.store.fixture import StoreFixture
from torchyard.contract.sweeps.spec import Point, SweepSpec

VARIED = {"args.x": {"min": 0.0, "max": 1.0}}


@pytest.fixture
def yard(db: StoreFixture, store: Store) -> Yard:
    return Yard(db, store)


def found(find: Callable[[], Iterable[Point]]) -> list[Point]:
    proposed = Proposals()
    proposed.begin(("swp_1", 0), find)
    while proposed.busy:
        if (points := proposed.take(("swp_1", 0), wait_s=1.0)) is not None:
            return points
    raise AssertionError("nobody has taken it")


def spinning() -> Iterator[Point]:
    yield {"x": 1}
    while True:
        pass


def hoarding() -> Iterator[Point]:
    yield {"x": 1}
    kept = bytearray(proposals.MEMORY_BYTES + (1 << 28))
    yield {"x": len(kept)}


def standing(*_: object, **__: object) -> Iterator[Point]:
    signal.pause()
    yield {"x": 1}


def waiting_for(path: Path) -> Callable[..., Iterator[Point]]:
    def find(*_: object, **__: object) -> Iterator[Point]:
        while not path.exists():
            time.sleep(0.01)
        yield {"args.x": 0.5}

    return find


def test_values_come_back_as_they_were() -> None:
    values: list[JsonValue] = [1, 1.0, True, None, "ä", [1, {"a": 1e-300}]]
    points = found(lambda: [{"x": value} for value in values])
    assert repr(points) == repr([{"x": value} for value in values])


def test_what_takes_too_long_or_too_much_memory_ends_and_what_was_found_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "CPU_S", 1)
    assert found(spinning) == [{"x": 1}]
    assert found(hoarding) == [{"x": 1}]
    monkeypatch.setattr(proposals, "WALL_S", 0.0)
    proposed = Proposals()
    proposed.begin(("swp_1", 0), standing)
    assert proposed.take(("swp_1", 0), wait_s=0.0) == []


def test_one_key_is_worked_for_at_a_time_and_given_up_when_nobody_wants_it() -> None:
    proposed = Proposals()
    proposed.begin(("swp_1", 0), standing)
    assert proposed.take(("swp_2", 0), wait_s=0.0) is None
    proposed.keep({("swp_1", 0), ("swp_2", 0)})
    assert proposed.busy
    proposed.keep({("swp_2", 0)})
    assert not proposed.busy


def test_a_sweep_whose_points_take_long_holds_up_no_other(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "sample", waiting_for(tmp_path / "go"))
    slow = yard.sweep(method="tpe", trials=1, parameters=VARIED)
    other = yard.sweep(caller=BOB)
    while len(yard.ids(other)) < 3:
        assert yard.duty.run()
    assert yard.ids(slow) == []
    (tmp_path / "go").touch()
    while not yard.ids(slow):
        assert yard.duty.run()
    assert yard.trials(slow)[0].point == {"args.x": 0.5}


def test_owners_take_turns_at_proposals(yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One user with a hundred sweeps does not keep another one waiting for a hundred proposals."""
    log = tmp_path / "log"

    def sample(spec: SweepSpec, *_: object, **__: object) -> Iterator[Point]:
        with log.open("a") as file:
            file.write(f"{spec.name}\n")
        yield {"args.x": 0.5}

    monkeypatch.setattr(sampling, "sample", sample)
    mine = [yard.sweep(name="ada", method="tpe", trials=1, parameters=VARIED) for _ in range(4)]
    other = yard.sweep(name="bob", caller=BOB, method="tpe", trials=1, parameters=VARIED)
    while not all(yard.ids(sweep) for sweep in (*mine, other)):
        assert yard.duty.run()
    assert "bob" in log.read_text().split()[:2]


def test_points_that_take_too_much_are_drawn_by_chance(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "sample", standing)
    monkeypatch.setattr(proposals, "WALL_S", 0.0)
    sweep = yard.sweep(method="tpe", trials=3, parameters=VARIED)
    while len(yard.ids(sweep)) < 3:
        assert yard.duty.run()
    points = [trial.point["args.x"] for trial in yard.trials(sweep)]
    assert len({str(point) for point in points}) == 3


def test_what_nobody_wants_any_more_is_given_up(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "sample", standing)
    sweep = yard.sweep(method="tpe", trials=3, parameters=VARIED)
    assert yard.duty.run()
    write(yard.store, requests.ask, "pause", sweep, caller=ADA)
    yard.run()
    assert yard.ids(sweep) == []
