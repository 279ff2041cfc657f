/** A chart's rows as a table and as CSV. */
import type { Line } from "./line";

export interface TableRow {
  /** The step or the time that it is of. */
  readonly place: number;
  readonly time: number;
  /** One for each line; null where it has no point there. */
  readonly values: readonly (number | null)[];
}

const HEAD = [
  "job_id",
  "job",
  "key",
  "step",
  "time",
  "attempt",
  "points",
  "mean",
  "min",
  "max",
  "ema",
  "nonfinite",
];

/** As the command line writes them: `_FORMULA` of torchyard/cli/telemetry.py. */
const FORMULA = /^[=+\-@\t\r＝＋－＠]/;

/**
 * Returns the rows of all lines by step or by time, at most `most` of them, evenly chosen with the first and the last,
 * and how many there are.
 */
export function tableOf(
  lines: readonly Line[],
  most: number,
  by: "step" | "time" = "step",
): { rows: readonly TableRow[]; all: number } {
  const times = new Map<number, number>();
  for (const { columns } of lines)
    for (let i = 0; i < columns.length; i++) times.set(columns[by][i] ?? 0, columns.time[i] ?? 0);
  const places = [...times.keys()].sort((a, b) => a - b);
  const chosen = places.length <= most ? places : evenly(places, most);
  const rows = chosen.map((place) => ({
    place,
    time: times.get(place) ?? 0,
    values: lines.map((line) => valueAt(line, place, by)),
  }));
  return { rows, all: places.length };
}

/** Returns the rows of all lines as CSV (RFC 4180), times in RFC 3339. */
export function csvOf(lines: readonly Line[]): string {
  const out = [HEAD.join(",")];
  for (const { jobId, job, key, columns } of lines.flatMap((line) => line.sources))
    for (let i = 0; i < columns.length; i++) {
      const numbers = [columns.mean, columns.min, columns.max, columns.ema].map((values) => values[i]);
      const time = new Date(Math.round((columns.time[i] ?? 0) * 1000)).toISOString();
      const place = [columns.step[i], time, columns.attempt[i], columns.weight[i]];
      out.push([...[jobId, job, key].map(textCell), ...place, ...numbers, columns.nonfinite[i]].join(","));
    }
  return `${out.join("\r\n")}\r\n`;
}

/** Returns `text` for a cell of CSV. A spreadsheet would run it as a formula if it began with one of these. */
export function textCell(text: string): string {
  const safe = FORMULA.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Returns the value of the point, or of the bucket that holds the place; null without one. */
function valueAt({ columns }: Line, place: number, by: "step" | "time"): number | null {
  const row = columns.firstAtOrAfter(place, (i) => columns[by][i] ?? 0);
  if (row === columns.length) return null;
  const isPoint = (columns.weight[row] ?? 1) === 1;
  return isPoint && columns[by][row] !== place ? null : (columns.mean[row] ?? null);
}

function evenly(items: readonly number[], most: number): readonly number[] {
  return Array.from(
    { length: most },
    (_, i) => items[Math.round((i * (items.length - 1)) / (most - 1))] ?? 0,
  );
}
