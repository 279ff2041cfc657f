"""Runs the scheduling plan and other policies on public traces: `python -m bench.scheduling --trace philly`.

The traces are in the folder TORCHYARD_TRACES. A figure is a mean over the seeds, in hours. Exits with 1 if a target is
missed. The five default seeds are parts of the commit's hash, so that the plan is not fitted to them.

`--forecast` scores the estimated starts on Philly instead: how many intervals hold, and how far the starts are off.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields
from itertools import chain, repeat
import json
import os
import subprocess
import sys

from bench.scheduling import ranked, traces
from bench.scheduling.accuracy import accuracy_of, table_of
from bench.scheduling.fair import Fair
from bench.scheduling.forecast import Forecasting, Outcome
from bench.scheduling.report import Result, result_of, verdicts
from bench.scheduling.simple import Easy, Fifo, Today
from bench.scheduling.simulator import Policy, simulate
from bench.scheduling.traces import Trace

_TRACES: dict[str, Callable[[str, float], Trace]] = {
    "philly": traces.philly,
    "kth": traces.kth,
    "flood": traces.flood,
}
_POLICIES: dict[str, Callable[[str], Policy]] = {
    "today": Today,
    "fifo": lambda _: Fifo(),
    "easy": lambda _: Easy(),
    "plan": lambda _: Fair(),
    "las": lambda _: ranked.las(),
    "srtf": lambda _: ranked.srtf(),
}
PUBLISHED_SLOWDOWN = 92.58
"""The slowdown of EASY on the whole of KTH-SP2, by Gaussier et al., SC'15."""
_SEEDS = 5
_FIGURES = [field.name for field in fields(Result) if field.type is float and field.name != "preemptible"]


@dataclass(frozen=True)
class _Run:
    trace: str
    seed: str
    preemptible: float
    policy: str


def main() -> None:
    options = _options()
    seeds = options.seeds or _seeds_of_the_commit()
    if options.forecast:
        sys.exit(0 if _print_accuracy(seeds, options.preemptible[0]) else 1)
    runs = [
        _Run(trace, seed, preemptible, policy)
        for trace in options.trace
        for preemptible in options.preemptible
        for seed in seeds
        for policy in options.policy
    ]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = [*pool.map(_result, runs)]
    met = True
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=1))
        met = all(verdict.met for verdict in verdicts(results))
    else:
        _print_rows(_table(results))
        met = _print_verdicts(results, with_published="kth" in options.trace and "easy" in options.policy)
    sys.exit(0 if met else 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.scheduling", description=__doc__)
    parser.add_argument("--trace", nargs="+", choices=[*_TRACES], default=[*_TRACES])
    parser.add_argument("--seeds", nargs="+", help="default: five parts of the commit's hash")
    parser.add_argument("--preemptible", nargs="+", type=float, default=[0.7], help="preemptible share (default 0.7)")
    parser.add_argument("--policy", nargs="+", choices=[*_POLICIES], default=[*_POLICIES])
    parser.add_argument("--forecast", action="store_true", help="score the estimated starts on Philly")
    parser.add_argument("--json", action="store_true", help="print all figures as a JSON list")
    return parser.parse_args()


def _seeds_of_the_commit() -> list[str]:
    found = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    return [found[8 * number : 8 * (number + 1)] for number in range(_SEEDS)]


def _result(run: _Run) -> Result:
    trace = _TRACES[run.trace](run.seed, run.preemptible)
    jobs = simulate(trace, _POLICIES[run.policy](run.seed))
    return result_of(run.trace, run.seed, run.preemptible, run.policy, jobs)


def _print_accuracy(seeds: Sequence[str], preemptible: float) -> bool:
    """Prints how good estimates are. Returns whether all targets are met."""
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        outcomes = [*pool.map(_outcomes, seeds, repeat(preemptible))]
    found = [accuracy_of(seed, some) for seed, some in zip(seeds, outcomes, strict=True)]
    found.append(accuracy_of("all", [*chain.from_iterable(outcomes)], in_all=True))
    _print_rows(table_of(found))
    return all(one.met for one in found)


def _outcomes(seed: str, preemptible: float) -> list[Outcome]:
    policy = Forecasting()
    simulate(traces.philly(seed, preemptible), policy)
    return policy.outcomes


def _table(results: Iterable[Result]) -> Iterator[tuple[str, ...]]:
    """Yields a row of each trace, share and policy: means over the seeds."""
    yield ("trace", "preemptible", "policy", *_FIGURES)
    yield ("---",) * (3 + len(_FIGURES))
    groups: dict[tuple[str, float, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.trace, result.preemptible, result.policy), []).append(result)
    for (trace, preemptible, policy), several in groups.items():
        means = [sum(getattr(one, figure) for one in several) / len(several) for figure in _FIGURES]
        yield (trace, f"{preemptible:.0%}", policy, *(f"{mean:.2f}" for mean in means))


def _print_rows(rows: Iterable[tuple[str, ...]]) -> None:
    for row in rows:
        print(f"| {' | '.join(row)} |")


def _print_verdicts(results: list[Result], *, with_published: bool) -> bool:
    """Prints the targets, and whether they are met. Returns whether all are."""
    rows = [("plan / today", "preemptible", "figure", "ratio", "target"), ("---",) * 5]
    met = True
    for verdict in verdicts(results):
        met &= verdict.met
        word = "met" if verdict.met else "MISSED"
        target = f"≤ {verdict.target.at_most:g} {word}"
        share = f"{verdict.preemptible:.0%}"
        rows.append((verdict.trace, share, verdict.target.figure, f"{verdict.ratio:.2f}", target))
    if with_published:
        slowdown = result_of("kth", "", 0.0, "easy", simulate(traces.whole_kth(), Easy())).slowdown
        close = abs(slowdown / PUBLISHED_SLOWDOWN - 1) <= 0.03
        met &= close
        word = "met" if close else "MISSED"
        rows.append(("EASY / SC'15", "", "slowdown", f"{slowdown / PUBLISHED_SLOWDOWN:.3f}", f"within 3% {word}"))
    print()
    _print_rows(rows)
    print(f"\nSeeds: {', '.join(dict.fromkeys(result.seed for result in results))}.")
    return met


if __name__ == "__main__":
    main()
