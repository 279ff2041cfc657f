/** What lies at the crosshair of a chart. */
import type { Colour } from "./colours";
import type { Line } from "./line";

export interface Band {
  readonly jobs: number;
  readonly min: number;
  readonly max: number;
}

export interface CrosshairPoint {
  /** Of the line. */
  readonly id: string;
  readonly jobId: string;
  readonly name: string;
  readonly colour: Colour;
  readonly x: number;
  readonly step: number;
  readonly time: number;
  readonly attempt: number;
  /** Of a group: how far its band reaches there, and how many of its jobs have points. */
  readonly band: Band | null;
  readonly value: number;
  /** What the line shows there: the value, or the smoothed one. */
  readonly shown: number;
}

export interface Crosshair {
  readonly x: number;
  /** Distance of the crosshair from the left of the plot, where it is this chart's own. */
  readonly left: number | null;
  readonly points: readonly CrosshairPoint[];
}

/** Returns the point of each line that is nearest to x. A line that has none there is left out. */
export function pointsAt(lines: readonly Line[], x: number, smooth: boolean): readonly CrosshairPoint[] {
  return lines
    .map((line) => ({ line, row: line.nearest(x) }))
    .filter(({ row }) => row >= 0)
    .map(({ line, row }) => ({
      id: line.id,
      jobId: line.jobId,
      name: line.name,
      colour: line.colour,
      x: line.x(row),
      step: line.columns.step[row] ?? 0,
      time: line.columns.time[row] ?? 0,
      attempt: line.columns.attempt[row] ?? 1,
      band: line.isBand ? bandAt(line, row) : null,
      value: line.columns.mean[row] ?? NaN,
      shown: line.shown(smooth)[row] ?? NaN,
    }));
}

/** Returns the points of an own crosshair that are nearest to a height, at most so many, by their distance. */
export function nearestOf<T>(points: readonly T[], away: (point: T) => number, most: number): readonly T[] {
  if (points.length <= most) return points;
  return [...points].sort((a, b) => away(a) - away(b)).slice(0, most);
}

function bandAt({ columns }: Line, row: number): Band {
  return { jobs: columns.weight[row] ?? 0, min: columns.min[row] ?? NaN, max: columns.max[row] ?? NaN };
}
