"""The rows of the trainer's overhead."""

import pytest

from bench import trainer_overhead
from bench.trainer_overhead import AGAIN, OTHERS, OURS, RAW, SETTINGS, rows


def test_each_peer_loop_has_a_row_and_the_noise_row_has_no_target() -> None:
    seconds = {OURS: [2.0], RAW: [1.99], AGAIN: [2.5], **{name: [1.5] for name in OTHERS}}
    found = list(rows(SETTINGS["small_cnn"], seconds))
    assert [row.peer for row in found] == [RAW, *OTHERS, RAW]
    assert [row.met for row in found] == [True, False, False, None]
    assert list(found[0].ours) == [40 * 32 / 2]


@pytest.mark.parametrize("option", ["--processes", "--batch", "--steps", "--turns"])
def test_zero_repeats_are_refused_in_one_sentence(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["bench", option, "0"])
    monkeypatch.setattr(trainer_overhead, "_gpus", lambda: 0)
    with pytest.raises(SystemExit, match="must be at least 1"):
        trainer_overhead.main()
