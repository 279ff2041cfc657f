/** Where the points of a scatter lie, and how they are painted. */
import type { Theme } from "../charts/theme";
import type { Size } from "./canvas";
import { rampOf, stepOf } from "./ramp";
import { shareOf, type PlotRow, type Variable } from "./rows";

const LEFT = 56;
const RIGHT = 12;
const TOP = 8;
const BOTTOM = 24;
/** Points do not touch the frame. */
const AIR = 0.03;
const RADIUS = 3.5;

export interface Point {
  /** Of its row. */
  readonly row: number;
  readonly x: number;
  readonly y: number;
}

/** Returns the shares of the rows that have both values. */
export function pointsOf(rows: readonly PlotRow[], x: Variable, y: Variable): readonly Point[] {
  return rows.flatMap((row, i): readonly Point[] => {
    const [across, up] = [shareOf(x, row.values[x.key]), shareOf(y, row.values[y.key])];
    return across === null || up === null ? [] : [{ row: i, x: across, y: up }];
  });
}

export function xOf({ width }: Size, share: number): number {
  return LEFT + (AIR + share * (1 - 2 * AIR)) * (width - LEFT - RIGHT);
}

export function yOf({ height }: Size, share: number): number {
  return TOP + (AIR + (1 - share) * (1 - 2 * AIR)) * (height - TOP - BOTTOM);
}

export interface Scene {
  readonly frame: Size;
  readonly points: readonly Point[];
  readonly kept: readonly boolean[];
  readonly target: Variable;
  /** Shares of the target, by row; NaN without one. */
  readonly targets: Float64Array;
}

/** Paints the points, those that a brush leaves out first and pale. */
export function paint(ctx: CanvasRenderingContext2D, scene: Scene, theme: Theme): void {
  const { frame, points, kept, target, targets } = scene;
  ctx.clearRect(0, 0, frame.width, frame.height);
  const ramp = rampOf(theme);
  const inOrder = [...points].sort((a, b) => Number(kept[a.row]) - Number(kept[b.row]));
  for (const { row, x, y } of inOrder) {
    const share = targets[row] ?? NaN;
    const colour = Number.isNaN(share) ? theme.muted : ramp[stepOf(share, target.better)];
    ctx.globalAlpha = kept[row] ? 0.85 : 0.15;
    ctx.fillStyle = colour ?? theme.muted;
    ctx.beginPath();
    ctx.arc(xOf(frame, x), yOf(frame, y), RADIUS, 0, 2 * Math.PI);
    ctx.fill();
  }
  ctx.globalAlpha = 1;
}

/** Returns the row whose point is nearest, within `most` pixels; -1 without one. */
export function nearest({ frame, points, kept }: Scene, x: number, y: number, most = 12): number {
  let [found, least] = [-1, most];
  for (const point of points) {
    if (!kept[point.row]) continue;
    const away = Math.hypot(xOf(frame, point.x) - x, yOf(frame, point.y) - y);
    if (away < least) [found, least] = [point.row, away];
  }
  return found;
}
