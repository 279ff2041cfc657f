/** Finer rows of a part of a curve, in which the page is zoomed. */
import { Columns } from "./columns";
import { Line } from "./line";
import type { Span } from "./span";

/** A range of steps. `to` is Infinity where it reaches the newest. */
export interface Steps {
  readonly from: number;
  readonly to: number;
}

export interface Detail extends Steps {
  readonly columns: Columns;
}

/** Returns the line with its finer rows where those hold all that is shown. */
export function finer(line: Line, detail: Detail, shown: Span): Line {
  const from = stepAt(line, shown.min);
  const to = stepAt(line, shown.max);
  if (from < detail.from || to > detail.to) return line;
  return new Line({ ...line, columns: detail.columns, whole: line.columns });
}

/** Returns the steps that lie in a range of x in any line, with a little on both sides; null where none does. */
export function stepsWithin(lines: readonly Line[], x: Span): Steps | null {
  let [from, to] = [Infinity, -Infinity];
  for (const line of lines) {
    const last = line.columns.length - 1;
    if (last < 0) continue;
    from = Math.min(from, stepAt(line, x.min));
    to = Math.max(to, x.max >= line.x(last) ? Infinity : stepAt(line, x.max));
  }
  if (!(from <= to)) return null;
  const room = Math.ceil((Math.min(to, from + 1e6) - from) * 0.05) + 1;
  return { from: Math.max(0, Math.floor(from) - room), to: Math.ceil(to) + room };
}

/** Adds the rows that came live while the finer ones were read. */
export function catchUp(detail: Columns, columns: Columns): void {
  const last = detail.step[detail.length - 1] ?? -Infinity;
  for (let i = columns.firstAtOrAfter(last, (row) => columns.step[row] ?? 0); i < columns.length; i++)
    detail.append(
      columns.step[i] ?? 0,
      columns.time[i] ?? 0,
      columns.attempt[i] ?? 1,
      columns.mean[i] ?? NaN,
    );
}

/** Returns the step at x, between the rows beside it. */
function stepAt(line: Line, x: number): number {
  const { step, length } = line.columns;
  const after = line.columns.firstAtOrAfter(x, (row) => line.x(row));
  if (after === 0 || after === length) return step[Math.min(after, length - 1)] ?? 0;
  const [left, right] = [step[after - 1] ?? 0, step[after] ?? 0];
  return left + ((x - line.x(after - 1)) / (line.x(after) - line.x(after - 1))) * (right - left);
}
