"""What the relay makes of the events of a job: metrics, progress, messages."""

from itertools import pairwise
import math
import time

import pytest

from store.output.facts import Batch
from tests.approved import Approved
from tests.worker import curvefiles, eventfiles
from tests.worker.attempts.output.relays import drain, little_memory, next_curves, relay_of, store, storing, texts
from torchyard.contract.attempts.events import Remeasured
from torchyard.contract.attempts.rundir import RunDir
from worker.curves import brought


def test_event_files_are_read_once_across_restarts_and_marked(run: RunDir) -> None:
    path = eventfiles.write(run.artifacts / "tb" / eventfiles.NAME, eventfiles.scalars("loss", {1: 0.5}))
    relay = relay_of(run)
    batch = next_curves(relay)
    assert [(point.key, point.step, point.value) for point in batch.curves["tensorboard"]] == [("loss", 1, 0.5)]
    assert batch.points == []
    with path.open("ab") as file:
        file.write(eventfiles.scalars("loss", {2: 0.25}))
    relay.close()
    relay = relay_of(run, offsets=batch.offsets)
    assert [point.step for point in next_curves(relay).curves["tensorboard"]] == [2]
    assert drain(relay, final=True) == []
    relay.close()


def test_files_of_wandb_and_mlflow_go_on_where_they_were_stored(run: RunDir) -> None:
    written = [curvefiles.history(step, {"acc": step / 8}) for step in range(3)]
    path = run.artifacts / "wandb" / "run-a" / "run-a.wandb"
    eventfiles.write(path, curvefiles.wandb_log(*written[:2]))
    database = curvefiles.Database(run.artifacts / "mlflow.db")
    later = time.time_ns() // 1_000_000 + 60_000
    database.log("f1", 0.5, step=1, time=later)
    relay = relay_of(run)
    found = drain(relay, final=True)
    relay.close()
    path.write_bytes(curvefiles.wandb_log(*written))
    database.log("f1", 0.25, step=2, time=later)
    relay = relay_of(run, offsets=found[-1].offsets)
    more = drain(relay, final=True)
    relay.close()
    steps = {
        source: [[point.step for batch in part for point in batch.curves.get(source, [])] for part in (found, more)]
        for source in ("wandb", "mlflow")
    }
    assert steps == {"wandb": [[0, 1], [2]], "mlflow": [[1], [2]]}


def test_points_are_not_older_than_their_attempt(run: RunDir) -> None:
    now = time.time_ns() // 1000 + 60_000_000
    lines = (f'{{"type":"metric","step":1,"time":{written},"values":{{"a":1}}}}\n' for written in (30, now))
    run.events.write_text("".join(lines))
    brought.remember(run, read={})
    eventfiles.write(run.artifacts / "tb" / eventfiles.NAME, eventfiles.scalars("loss", {1: 0.5}))
    started = run.brought.stat().st_mtime_ns // 1000
    relay = relay_of(run)
    found = drain(relay, final=True)
    assert [point.time for batch in found for point in batch.points] == [started, now]
    assert [point.time for batch in found for point in batch.curves.get("tensorboard", [])] == [started]
    relay.close()


def test_a_batch_says_whether_the_event_log_has_something_new(run: RunDir) -> None:
    relay = relay_of(run)
    found: list[bool] = []
    for path, text in ((run.log("rank-0", "stdout"), "a line\n"), (run.events, "{}\n"), (run.events, "{}\n")):
        with path.open("a") as file:
            file.write(text)
        batch = relay.read()
        assert batch is not None
        with storing(relay, batch):
            found.append(batch.reports)
    assert found == [False, True, True]


def test_metrics_progress_and_messages_are_parsed(run: RunDir) -> None:
    run.events.write_text(
        '{"type":"metric","step":3,"time":30,"values":{"train/loss":"NaN","train/lr":0.5,"train/x":"-Infinity"}}\n'
        '{"type":"progress","step":10,"total_steps":40,"epoch":1,"epochs":4,"time":1000000}\n'
        '{"type":"progress","step":20,"total_steps":40,"epoch":2,"epochs":4,"time":3000000}\n'
        '{"type":"message","level":"info","text":"hello","time":5}\n'
    )
    (batch,) = drain(relay_of(run))
    values = {point.key: point.value for point in batch.points}
    assert math.isnan(values.pop("train/loss"))
    assert values == {"train/lr": 0.5, "train/x": -math.inf}
    assert batch.progress == {
        "step": 20,
        "total_steps": 40,
        "epoch": 2,
        "epochs": 4,
        "fraction": 0.5,
        "eta_seconds": 4.0,
    }
    assert [event.data["text"] for event in batch.events if event.type == "message"] == ["hello"]
    announced = [event for event in batch.events if event.type == "progress"]
    assert [(event.data["step"], event.data["fraction"], event.time) for event in announced] == [
        (10, 0.25, 1_000_000),
        (20, 0.5, 3_000_000),
    ]
    assert batch.lag_us > 0


def progress_lines(*steps: int, pace: int, epoch: int = 1) -> str:
    """Returns a progress line for each step, `pace` microseconds apart."""
    return "".join(
        f'{{"type":"progress","step":{step},"total_steps":100000,"epoch":{epoch},"time":{step * pace}}}\n'
        for step in steps
    )


def announced_steps(batches: list[Batch]) -> list[int]:
    """Returns the steps whose progress became an event."""
    return [event.data["step"] for batch in batches for event in batch.events if event.type == "progress"]


def test_progress_becomes_an_event_at_intervals_and_at_the_end(run: RunDir) -> None:
    run.events.write_text(progress_lines(*range(1, 26), pace=100_000))
    relay = relay_of(run)
    batches = drain(relay)
    assert announced_steps(batches) == [1, 6, 11, 16, 21]
    assert batches[-1].progress is not None
    assert batches[-1].progress["step"] == 25
    last = relay.read(final=True)
    assert last is not None
    store(relay, last)
    assert announced_steps([last]) == [25]
    assert relay.read(final=True) is None


def test_progress_events_become_rarer_the_longer_an_attempt_runs(run: RunDir) -> None:
    run.events.write_text(progress_lines(*range(1, 40_001), pace=1_000_000))
    steps = announced_steps(drain(relay_of(run)))
    gaps = [after - before for before, after in pairwise(steps)]
    assert gaps == sorted(gaps)
    assert (gaps[0], gaps[-1]) == (1, 60)
    assert len(steps) < 4000


def test_a_new_epoch_becomes_an_event_at_once(run: RunDir) -> None:
    run.events.write_text(progress_lines(1, 2, pace=1) + progress_lines(3, 4, pace=1, epoch=2))
    assert announced_steps(drain(relay_of(run))) == [1, 3]


def test_the_progress_of_a_batch_that_was_not_stored_is_announced_again(run: RunDir) -> None:
    run.events.write_text(progress_lines(1, pace=1))
    relay = relay_of(run)
    relay.read()
    assert announced_steps(drain(relay)) == [1]


def test_a_batch_contains_its_last_card(run: RunDir) -> None:
    run.events.write_text(
        '{"type":"card","time":1,"values":{"parameters":62}}\n'
        '{"type":"card","time":2,"values":{"parameters":63,"speed":NaN,"versions":{"torch":"2.14.1","cuda":null}}}\n'
    )
    (batch,) = drain(relay_of(run))
    assert batch.card == {"parameters": 63, "speed": "NaN", "versions": {"torch": "2.14.1", "cuda": None}}
    assert batch.events == []


def test_a_batch_contains_the_last_packages(run: RunDir) -> None:
    run.events.write_text(
        "".join(
            f'{{"type":"packages","time":1,"values":{{"torch":"{version}"}}}}\n' for version in ("2.13", "2.14+cpu")
        )
    )
    (batch,) = drain(relay_of(run))
    assert (batch.packages, batch.events) == ({"torch": "2.14+cpu"}, [])


def test_a_batch_contains_the_last_line_about_what_was_measured_again(run: RunDir) -> None:
    lines = [Remeasured(time=1, name="one", metrics={"val/loss": value}) for value in (2.0, 1.0)]
    run.events.write_text("".join(f"{line.to_json()}\n" for line in lines))
    (batch,) = drain(relay_of(run))
    assert batch.remeasured == lines[-1]


@pytest.mark.parametrize(
    "values",
    [
        "[]",
        '{"a": "' + "x" * 70_000 + '"}',
        '{"a": ' + "[" * 40 + "]" * 40 + "}",
        '{"a": ' + "[" * 10_000 + "]" * 10_000 + "}",
        '{"a": ' + "9" * 5000 + "}",
        '{"a": "\\u0000"}',
        '{"a": "\\ud800"}',
        '{"": 1}',
    ],
)
def test_an_invalid_card_is_skipped_with_a_message(run: RunDir, values: str) -> None:
    run.events.write_text(
        '{"type":"card","time":1,"values":{"parameters":62}}\n'
        f'{{"type":"card","time":2,"values":{values}}}\n'
        '{"type":"metric","step":1,"time":1,"values":{"a":1}}\n'
    )
    (batch,) = drain(relay_of(run))
    assert batch.card == {"parameters": 62}
    assert [point.key for point in batch.points] == ["a"]
    assert [text.startswith("a line of events.jsonl is not a valid event") for text in texts([batch])] == [True]


def test_invalid_event_lines_are_reported_and_skipped(run: RunDir) -> None:
    lines = [b"\xff\xfe\x00binary", b'{"type":"metric","step":-1,"time":1,"values":{}}', b"[]", b"", b'{"type":"ufo"}']
    good = b'{"type":"metric","step":1,"time":1,"values":{"a":1}}'
    run.events.write_bytes(b"\n".join([*lines, good]) + b"\n")
    (batch,) = drain(relay_of(run))
    assert [point.key for point in batch.points] == ["a"]
    assert len(batch.events) == 4
    assert all("is not a valid event" in text for text in texts([batch]))


def test_an_event_longer_than_a_chunk_gives_one_warning(run: RunDir, approved: Approved) -> None:
    good = '{"type":"metric","step":1,"time":1,"values":{"a":1}}\n'
    run.events.write_text('{"type":"' + "x" * 5_000_000 + '"}\n' + good)
    batches = drain(relay_of(run))
    (text,) = texts(batches)
    assert text == approved("text")
    assert [point.key for batch in batches for point in batch.points] == ["a"]


@pytest.mark.parametrize("count", [30_000, pytest.param(100_000, marks=pytest.mark.thorough)])
def test_a_flood_of_points_is_read_in_order_and_in_little_memory(run: RunDir, count: int) -> None:
    with run.events.open("w") as file:
        for step in range(count):
            file.write(f'{{"type":"metric","step":{step},"time":{step},"values":{{"train/loss":{step / 7}}}}}\n')
    relay, expected = relay_of(run), 0
    with little_memory(32):
        while (batch := relay.read()) is not None:
            store(relay, batch)
            assert [point.step for point in batch.points] == list(range(expected, expected + len(batch.points)))
            expected += len(batch.points)
    assert expected == count
