"""How much of the host's processors an attempt uses."""

from collections.abc import Collection, Mapping
import os
import subprocess
import sys

from worker.engines.local.metering import Meter
from worker.host import process
from worker.host.attempt_key import AttemptKey

FIRST, SECOND = AttemptKey("job_a", 1), AttemptKey("job_b", 1)
BUSY = """
import os, time
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
print("worked", flush=True)
input()
"""


def test_an_attempt_has_its_share_of_all_processors_since_the_call_before() -> None:
    now, used = 100.0, {FIRST: 5.0}

    def seconds(_: Mapping[AttemptKey, Collection[int]]) -> dict[AttemptKey, float]:
        return dict(used)

    meter = Meter(processors=4, clock=lambda: now, seconds=seconds)
    assert meter.shares({}) == {}
    now, used = 105.0, {FIRST: 15.0, SECOND: 40.0}
    assert meter.shares({}) == {FIRST: 0.5}
    now, used = 110.0, {FIRST: 14.0, SECOND: 90.0}
    assert meter.shares({}) == {FIRST: 0.0, SECOND: 1.0}


def test_the_processor_time_of_children_counts() -> None:
    before = process.processor_seconds({FIRST: [os.getpid()]})[FIRST]
    child = subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"worked\n"
        running = process.processor_seconds({FIRST: [os.getpid()], SECOND: [child.pid]})
        assert running[SECOND] >= 0.25
        assert running[FIRST] - before >= 0.25
        child.communicate(b"\n")
    assert process.processor_seconds({FIRST: [os.getpid()]})[FIRST] >= running[FIRST]
    assert process.processor_seconds({SECOND: [child.pid]}) == {SECOND: 0}
