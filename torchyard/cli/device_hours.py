"""The command `usage`: who had how much of the devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from torchyard.cli import output
from torchyard.cli.arguments import Json, connect
from torchyard.contract.wire.text import csv_of
from torchyard.host import terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchyard.contract.cluster.usage import UsageFigures, UsageRow

_STDOUT = "-"


def usage(
    *,
    by: Annotated[Literal["owner", "label"], typer.Option(help="One row per user, or per label.")] = "owner",
    days: Annotated[int, typer.Option(min=1, max=366, help="The last N days, in UTC.")] = 30,
    owner: Annotated[str | None, typer.Option(metavar="USER", help="Only this user's jobs.")] = None,
    to_csv: Annotated[
        str | None, typer.Option("--csv", metavar="FILE", help="Write one CSV line per day to FILE; - is stdout.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show device-hours by user, and GPU utilization.

    `--by label` counts your own jobs; for administrators, all jobs. A job with two labels counts for both.
    """
    if as_json and to_csv is not None:
        raise typer.BadParameter("use either --csv or --json, not both")
    with connect() as client:
        found = [*client.usage(by=by, days=days, owner=owner)]
    if to_csv is not None:
        return _write_csv(found, to_csv)
    lines = _table(found, by_label=by == "label", days=days)
    return output.show(found, lines, nothing=_nothing(by, owner), as_json=as_json)


def _table(rows: Sequence[UsageRow], *, by_label: bool, days: int) -> list[str]:
    of = (output.OWNER, "LABEL") if by_label else ("USER",)  # a column OWNER is left out where there is one owner
    period = f"{days} DAYS" if days > 1 else "TODAY"
    headers = (*of, f"GPU-HOURS {period}", "GPU-HOURS TOTAL", f"CPU-SLOT-HOURS {period}", "UTILIZATION", "IDLE HOURS")
    cells = [((row.owner, row.label or "") if by_label else (row.owner,)) + _cells(row) for row in rows]
    return output.table(headers, cells)


def _cells(row: UsageRow) -> tuple[str, ...]:
    now = row.period
    figures = (now.gpu_hours, row.total.gpu_hours, now.cpu_slot_hours)
    return (*map(_hours, figures), _utilization(now), "" if now.gpu_utilization is None else _hours(now.idle_gpu_hours))


def _utilization(figures: UsageFigures) -> str:
    return "" if figures.gpu_utilization is None else f"{figures.gpu_utilization:.0%}"


def _hours(hours: float) -> str:
    return "<0.1" if 0 < hours < 0.1 else f"{hours:,.1f}"


def _nothing(by: str, owner: str | None) -> str:
    of = "" if owner is None else f" of {owner}"
    return f"No {'job with a label' if by == 'label' else 'job'}{of} has used devices yet."


def _write_csv(rows: Sequence[UsageRow], to: str) -> None:
    from torchyard.contract.cluster.usage import CSV_COLUMNS

    text = csv_of([CSV_COLUMNS, *(line for row in rows for line in row.csv_lines())])
    if to == _STDOUT:
        return terminal.write(text.rstrip("\n"))
    Path(to).write_text(text, encoding="utf-8", newline="")
    days = sum(len(row.days) for row in rows)
    return terminal.note(f"Wrote {output.count(days, 'day')} of {output.count(len(rows), 'row')} to {to}.")
