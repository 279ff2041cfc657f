"""Profiles some optimizer steps of rank 0 with torch.profiler: a trace for Chrome's viewer, and what costs most."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
import gzip
import heapq
from pathlib import Path
import shutil
import tempfile
from typing import Any

from torchyard.contract.attempts.rundir import Env, RunDir

MOST_APART = 100
"""Steps between two reports, and reports of the same step, from which on nothing is profiled: memory has an end."""
MOST_BYTES = 1 << 30
"""Bytes of a trace before it is packed."""
COSTS = 5
FOLDER = "profile"
_STEP = "ProfilerStep"
"""How viewers of traces know a step."""

Tell = Callable[[str], None]


def profiling_of(environ: Mapping[str, str], run: RunDir, *, rank: int, tell: Tell) -> "Profiling | None":
    """Returns what profiles this rank; None if the job asks for no profile, or this is not rank 0."""
    asked = environ.get(Env.PROFILE)
    if not asked or rank:
        return None
    start, steps = map(int, asked.split(":"))
    return Profiling(start, steps, run.artifacts / FOLDER, tell, resumes=Env.RESUME_FROM in environ)


class Profiling:
    """Profiles `steps` optimizer steps after step `start`, as the program reports them. Its failures are messages."""

    def __init__(self, start: int, steps: int, folder: Path, tell: Tell, *, resumes: bool) -> None:
        self._start, self._steps, self._folder, self._tell, self._resumes = start, steps, folder, tell, resumes
        self._done = False
        self._last: int | None = None
        """The highest step that was reported."""
        self._repeated = 0
        """How often it was reported again."""
        self._trace: _Trace | None = None

    def at(self, step: int) -> None:
        """Notes that the program has reached `step`: all that it does from now on belongs to the next one."""
        if self._done:
            return
        last = self._last
        if last is not None and step <= last:
            self._repeated += 1
            if self._trace is not None and self._repeated > MOST_APART:  # an evaluation, which may be long
                self._finish(last)
            return
        self._last, self._repeated = step, 0
        if self._trace is not None:
            self._go_on(self._trace, step)
        elif step >= self._start:
            self._begin(step, last)

    def finish(self) -> None:
        """Ends the profile with the program. Tells why there is none, if there is none."""
        if self._done:
            return
        if self._last is None:
            self._leave("the program has reported no step: it must call run.progress or run.log")
        elif self._trace is None:
            self._leave(f"the program ended at step {self._last}, before profile.start ({self._start})")
        else:
            self._finish(self._last)

    def _begin(self, step: int, last: int | None) -> None:
        if self._resumes and last is None and step > self._start:
            self._leave(f"this attempt goes on from a step that is not before profile.start ({self._start})")
        elif step - (last or 0) > MOST_APART and not (self._resumes and last is None):
            self._leave(f"the program reports its steps {step - (last or 0)} apart: call run.progress in each one")
        else:
            self._trying(lambda: self._start_trace(step))

    def _start_trace(self, step: int) -> None:
        self._trace = _Trace(step)

    def _go_on(self, trace: "_Trace", step: int) -> None:
        if step - trace.first >= self._steps:
            self._finish(step)
        else:
            self._trying(lambda: trace.mark(step))

    def _finish(self, step: int) -> None:
        trace, self._trace = self._trace, None
        self._done = True
        assert trace is not None, "it was begun"
        self._trying(lambda: self._write(trace, step))

    def _write(self, trace: "_Trace", last: int) -> None:
        trace.stop()
        if last == trace.first:
            self._leave("the program ended before a whole step was profiled")
            return
        path = self._folder / f"steps-{trace.first + 1}-{last}.json.gz"
        few = last - trace.first
        short = f", {few} of {self._steps}, as the program did no more of them" if few < self._steps else ""
        kept = f"the trace has more than {MOST_BYTES} bytes, and is not kept"
        if trace.write(path):
            kept = f"the trace is the artifact {FOLDER}/{path.name}"
        self._tell(f"profile of steps {trace.first + 1} to {last}{short}: {trace.costs()}; {kept}")

    def _trying(self, do: Callable[[], None]) -> None:
        try:
            do()
        except Exception as error:  # noqa: BLE001 a profile must not fail the job
            reason = (str(error) or type(error).__name__).splitlines()[0]
            self._leave(f"the profiler failed: {reason}")

    def _leave(self, why: str) -> None:
        self._done = True
        self._tell(f"nothing was profiled: {why}")


class _Trace:
    """A profile that has begun, after step `first`."""

    def __init__(self, first: int) -> None:
        import torch

        self.first = first
        activity = torch.profiler.ProfilerActivity
        gpus = [activity.CUDA] if torch.cuda.is_available() else []
        self._profiler = torch.profiler.profile(activities=[activity.CPU, *gpus])
        self._profiler.start()
        self._step: AbstractContextManager[Any] | None = None
        self.mark(first)

    def mark(self, step: int) -> None:
        """Begins the step after `step`."""
        import torch

        self._end_step()
        self._step = torch.profiler.record_function(f"{_STEP}#{step + 1}")
        self._step.__enter__()

    def stop(self) -> None:
        """Ends the profile. Waits for the device."""
        self._end_step()
        self._profiler.stop()

    def write(self, path: Path) -> bool:
        """Writes the trace, packed. Returns False if it is too large. Raises OSError."""
        with tempfile.TemporaryDirectory() as folder:
            plain = Path(folder) / "trace.json"
            self._profiler.export_chrome_trace(str(plain))
            if plain.stat().st_size > MOST_BYTES:
                return False
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with plain.open("rb") as found, gzip.open(path, "wb", compresslevel=1) as packed:
                    shutil.copyfileobj(found, packed, 1 << 20)
            except OSError:
                path.unlink(missing_ok=True)  # half of a trace is no artifact
                raise
        return True

    def costs(self) -> str:
        """Says which operations took most of the time themselves: of the device if there is one, else of the CPUs."""
        operations = [item for item in self._profiler.key_averages() if not item.key.startswith(_STEP)]
        on_device = {item.key: item.self_device_time_total for item in operations if item.device_type.name == "CPU"}
        on_cpu = {item.key: item.self_cpu_time_total for item in operations}
        times, where = (on_device, "the device's") if any(on_device.values()) else (on_cpu, "the CPUs'")
        whole = sum(times.values()) or 1.0
        largest = heapq.nlargest(COSTS, times, key=times.__getitem__)
        shown = ", ".join(f"{name[:80]} {times[name] / whole:.0%} ({times[name] / 1000:.1f} ms)" for name in largest)
        return f"of {where} time in operations {shown}"

    def _end_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)
