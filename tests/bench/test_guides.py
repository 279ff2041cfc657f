"""The compared training methods, and what makes their results equal."""

from pathlib import Path

import pytest

from bench import guides
from bench.guides import NOTHING, Outcome, left_out, noise, outcome_of, rows, ways_of
from torchyard.contract.attempts.events import Metric
from torchyard.contract.attempts.rundir import RunDir


def outcomes(*finals: float) -> list[Outcome]:
    return [Outcome(speed=100, epoch_s=2, final=final) for final in finals]


@pytest.mark.parametrize(("processes", "gpus"), [(2, 0), (4, 4), (1, 1)])
def test_every_method_has_the_same_global_batch(processes: int, gpus: int) -> None:
    ways = ways_of(128, processes=processes, windows=[1, 2, 4, 8], gpus=gpus)
    for way in ways:
        assert way.batch * way.window * (1 if way.data_parallel else way.processes) == 128
    assert any(way.data_parallel for way in ways) == (gpus > 1)
    assert len({way.name for way in ways}) == len(ways) == 5 + (gpus > 1) - (processes == 1)


def test_skipped_methods_are_reported() -> None:
    said = "\n".join(left_out(processes=2, gpus=0))
    assert "DataParallel" in said
    assert "Without a GPU" in said
    assert list(left_out(processes=2, gpus=2)) == []


def test_metrics_are_equal_within_the_noise_of_the_seeds() -> None:
    found = {"one": outcomes(95, 96, 97), "near": outcomes(94, 95, 96), "far": outcomes(80, 81, 82)}
    assert noise(list(found.values())) == pytest.approx(3)
    shown = list(rows(found, "val/accuracy"))
    assert [row.met for row in shown] == [None] * 5 + [True, None, None, False]
    assert [row.peer for row in shown] == [""] * 3 + ["one"] * 6


def test_noise_needs_repeats_and_is_never_zero() -> None:
    assert noise([outcomes(95), outcomes(96)]) is None
    assert noise([outcomes(95, 95), outcomes(96, 96)]) == NOTHING


def test_the_first_epoch_warms_up(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.create()
    lines: list[Metric] = []
    for epoch, (speed, accuracy, seconds) in enumerate([(1, 0.1, 9), (50, 0.5, 11), (70, 0.9, 13)], start=1):
        when = seconds * 1_000_000
        lines.append(Metric(time=when - 1, step=epoch, values={"train/samples_per_second": speed}))
        lines.append(Metric(time=when, step=epoch, values={"val/accuracy": accuracy}))
    run.events.write_text("".join(f"{line.to_json()}\n" for line in lines))
    assert outcome_of(run, "val/accuracy") == Outcome(speed=60, epoch_s=2, final=90)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--global-batch", "100"], "take a multiple of 32"),
        (["--data", "/nowhere"], "there is no /nowhere"),
        (["--recipe", "segmentation"], "needs --data"),
        (["--epochs", "1"], "at least 2"),
        (["--windows", "0"], "at least 1"),
        (["--processes", "0"], "at least 1"),
        (["--image-size", "0"], "image_size"),
    ],
)
def test_invalid_options_are_refused_in_one_sentence(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", "--processes", "2", *arguments])
    monkeypatch.setattr(guides, "_gpus", lambda: 0)
    with pytest.raises(SystemExit, match=said):
        guides.main()
