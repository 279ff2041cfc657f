"""Submits a sweep, says what of it varies, and follows it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from torchyard.cli import output
from torchyard.cli.sweeps import table
from torchyard.cli.sweeps.keys import whole_key
from torchyard.cli.sweeps.values import point_of
from torchyard.contract.errors import InvalidSpec
from torchyard.contract.spec.log_metrics import KEY, key_of
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.contract.sweeps.arguments import ARGUMENT, described
from torchyard.contract.sweeps.spec import Range, SweepSpec, parse_sweep
from torchyard.host import terminal

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from torchyard.client import Client
    from torchyard.contract.sweeps.views import SweepView

_LISTED = 20
"""Trials that are listed at the end of a sweep."""
_SHOWN = 8
"""The most values of a key that are listed."""


def with_whole_keys(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the sweep with whole paths for short keys such as `lr`. Raises BadParameter."""
    job: Any = spec.get("job")
    trainer = str(job.get("trainer")) if isinstance(job, dict) else ""
    found = {**spec}
    parameters: Any = spec.get("parameters")
    points: Any = spec.get("points")
    if isinstance(parameters, dict):
        found["parameters"] = _whole(parameters, trainer)
    if isinstance(styles := spec.get("styles"), dict):
        found["styles"] = _whole(styles, trainer)
    if isinstance(points, list):
        found["points"] = [_whole(point, trainer) if isinstance(point, dict) else point for point in points]
    return found


def announced(spec: dict[str, Any], by: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Says what varies and how many trials there are, and returns the spec, whose job the service checks.

    `by`: by keys, where the source of the program says how they are written. Raises InvalidSpec, whose message names
    each wrong field.
    """
    with naming_fields():
        parsed = parse_sweep(spec)
    for line in _plan(parsed, by or {}):
        terminal.note(line)
    return spec


@contextmanager
def naming_fields() -> Generator[None]:
    """Has the message of an InvalidSpec name each wrong field."""
    try:
        yield
    except InvalidSpec as error:
        lines = [error.message, *(f"  {f'{each.field}: ' * bool(each.field)}{each.message}" for each in error.errors)]
        raise InvalidSpec("\n".join(lines), errors=error.errors) from None


def points_of(texts: Sequence[str], trainer: str) -> list[dict[str, Any]]:
    """Returns the points that texts such as `lr=0.1,seed=3` or JSON objects write. Raises BadParameter."""

    def is_argument(key: str) -> bool:
        return whole_key(key, trainer=trainer).startswith(ARGUMENT)

    return [_whole(point_of(text, as_typed=is_argument), trainer) for text in texts]


def submit_sweep(
    client: Client, spec: Mapping[str, Any], *, detach: bool, as_json: bool, idempotency_key: str | None
) -> None:
    """Submits the sweep and prints its id, or follows it, prints its ranking and exits with the code of its state."""
    if (said := _unmeasured(parse_sweep(spec))) is not None:
        terminal.note(said)
    made = client.sweeps.create(spec, idempotency_key=idempotency_key)
    come_back = f"{output.command()} sweep show {made.id} -f"
    if detach:
        output.show(made, [made.id], as_json=as_json)
        terminal.note(f"Submitted {made.name}, {output.count(made.trials.total, 'trial')}. Follow it: {come_back}")
        return
    terminal.note(
        f"Submitted {made.name}: {made.id}\nFollowing its trials. Ctrl-C stops following, not the "
        f"sweep. Follow again: {come_back}"
    )
    followed(client, made, as_json=as_json)


def followed(client: Client, sweep: SweepView, *, as_json: bool) -> None:
    """Follows the sweep, prints its ranking, and exits with the code of its state."""
    from torchyard.cli.sweeps.follow import exit_code, follow

    ended = follow(client, sweep)
    show(client, ended, limit=None if as_json else _LISTED, as_json=as_json)
    raise typer.Exit(exit_code(ended))


def show(client: Client, sweep: SweepView, *, limit: int | None, as_json: bool) -> None:
    """Prints what a sweep is, and its trials, the best first."""
    trials = [*client.sweeps.trials(sweep.id, limit=limit)]
    more = sweep.trials.total - sweep.trials.waiting - len(trials)
    lines, notes = table.lines_of(sweep), list[str]()
    if trials:
        lines = [*lines, "", *table.ranking(trials, keys=table.trial_keys(sweep, trials))]
    if trials and more > 0:
        notes.append(f"{more} more trials: {output.command()} sweep show {sweep.name} --all-rows")
    output.show({"sweep": sweep, "trials": trials}, lines, notes=notes, as_json=as_json)


def _unmeasured(spec: SweepSpec) -> str | None:
    """Says which metric ranks the trials of a script, where no pattern of it finds that in what the program writes."""
    job = spec.job
    if job.get("trainer") != "script" or spec.method == "array":
        return None
    monitor = spec.monitor or _below(job, "checkpoint").get("monitor") or CheckpointPolicy().monitor
    patterns = map(str, _below(job, "metrics").get("patterns") or ())
    if any(f"(?P<{KEY}>" in each or key_of(each) == monitor for each in patterns):
        return None
    return (
        f"The metric {monitor} ranks the trials. Report it from the program, or extract one from its output:"
        r" --metric 'loss[ =:]+(?P<value>\S+)' --monitor loss"
    )


def _below(job: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = job.get(key)
    return found if isinstance(found, dict) else {}


def _plan(spec: SweepSpec, by: Mapping[str, str]) -> list[str]:
    names = table.short_keys([*spec.parameters])
    rows = [(names[key], f"{_values(values)}{_style(spec, key, by)}") for key, values in spec.parameters.items()]
    parallel = "" if spec.max_parallel is None else f", {spec.max_parallel} at once"
    rows += [("trials", f"{spec.size} of {spec.method}{parallel}")]
    width = max(9, *(len(name) for name, _ in rows))
    return [f"{name:<{width}}  {terminal.plain(text)}" for name, text in rows]


def _style(spec: SweepSpec, key: str, by: Mapping[str, str]) -> str:
    """Says how an argument is written, where that is not the ordinary way."""
    style = spec.styles.get(key, "value")
    if style == "value":
        return ""
    return f"   ({described(key, style)}{f': {by[key]}' if key in by else ''})"


def _whole(keyed: dict[str, Any], trainer: str) -> dict[str, Any]:
    return {whole_key(str(key), trainer=trainer): value for key, value in keyed.items()}


def _values(values: list[Any] | Range) -> str:
    if isinstance(values, Range):
        least = table.value_text(values.number(0) if values.integer else values.min)
        between = f"{least} to {terminal.setting(values.max)}"
        return between + (", logarithmic" if values.log else "") + (f" by {values.step:g}" if values.step else "")
    shown = [table.value_text(value) for value in values[:_SHOWN]]
    return ", ".join([*shown, *([f"… ({len(values)})"] if len(values) > _SHOWN else [])])
