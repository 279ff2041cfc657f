"""The rows of the trainer's overhead."""

import pytest

from bench import trainer_overhead
from bench.trainer_overhead import AGAIN, OTHERS, OURS, RAW, SETTINGS, rows
from bench.turns import Measured


def test_each_peer_loop_has_rows_and_only_those_of_speed_have_a_target() -> None:
    seconds = {OURS: 2.0, RAW: 1.99, AGAIN: 2.5, **dict.fromkeys(OTHERS, 1.5)}
    measured = {name: Measured([value], operations=10 * value, calls=5.0) for name, value in seconds.items()}
    found = list(rows(SETTINGS["small_cnn"], measured))
    assert [row.peer for row in found] == [RAW, *OTHERS, RAW, *(name for name in (RAW, *OTHERS) for _ in range(2))]
    assert [row.met for row in found] == [True, False, False, *[None] * 7]
    assert list(found[0].ours) == [40 * 32 / 2]
    assert [(list(row.ours), list(row.theirs)) for row in found[4:6]] == [([20.0], [19.9]), ([5.0], [5.0])]


@pytest.mark.parametrize("option", ["--processes", "--batch", "--steps", "--turns"])
def test_zero_repeats_are_refused_in_one_sentence(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["bench", option, "0"])
    monkeypatch.setattr(trainer_overhead, "_gpus", lambda: 0)
    with pytest.raises(SystemExit, match="must be at least 1"):
        trainer_overhead.main()
