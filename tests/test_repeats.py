"""Which tests on the other database the quick run leaves out."""

from pathlib import Path
from typing import cast

import pytest

from tests import repeats


class Item:
    """As much of a collected test as the rule reads."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid
        self.thorough = False

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return pytest.mark.thorough.mark if self.thorough and name == "thorough" else None

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.thorough = marker.name == "thorough"


def quick(*names: str, folder: str = "store") -> list[str]:
    items = [Item(f"tests/{folder}/{name}") for name in names]
    repeats.leave_out(cast(list[pytest.Item], items))
    return [item.nodeid.removeprefix(f"tests/{folder}/") for item in items if not item.thorough]


def test_each_test_runs_on_one_database_and_both_have_many() -> None:
    names = [f"test_x.py::test_{number}[{kind}]" for number in range(100) for kind in ("sqlite", "postgresql")]
    found = quick(*names)
    assert len({name.partition("[")[0] for name in found}) == len(found) == 100
    assert 5 < sum("postgresql" in name for name in found) < 25
    assert quick(*names[:20]) == [name for name in found if name in names[:20]]


def test_further_parameters_run_on_sqlite() -> None:
    found = quick(*(f"test_x.py::test_x[{kind}-{value}]" for value in "abc" for kind in ("sqlite", "postgresql")))
    assert [name[-2] for name in found] == ["a", "b", "c"]
    assert ["sqlite" in name for name in found[1:]] == [True, True]


def test_what_runs_on_one_or_differs_between_the_databases_is_left_alone() -> None:
    names = ["test_x.py::test_x[postgresql]", "test_x.py::test_y[sqlite]", "test_x.py::test_z"]
    both = ["test_prepared.py::test_x[sqlite]", "test_prepared.py::test_x[postgresql]"]
    assert quick(*names, *both) == [*names, *both]


def test_those_of_a_whole_service_run_on_sqlite() -> None:
    names = [f"test_x.py::test_{number}[{kind}]" for number in range(9) for kind in ("sqlite", "postgresql")]
    assert quick(*names, folder="own_code") == names[::2]


def test_the_files_that_run_on_both_are_there() -> None:
    assert [name for name in repeats.ON_BOTH if not (Path(__file__).parent / name).exists()] == []
