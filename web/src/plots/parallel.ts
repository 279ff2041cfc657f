/** Computes the layout of parallel coordinates, and paints it on a canvas. */
import type { Theme } from "../charts/theme";
import type { Size } from "./canvas";
import { rampOf, stepOf } from "./ramp";
import { shareOf, type PlotRow, type Variable } from "./rows";

export interface Frame extends Size {
  /** Room beside the first and the last axis for their labels and names. */
  readonly left: number;
  readonly right: number;
}

/** Room above the axes for their names, and below for the least value. */
const TOP = 40;
const BOTTOM = 16;
const LEAST_SIDE = 32;
/** Between an axis and its labels. */
export const GAP = 8;
const DIMMED = 0.12;

/** Runs as shares of each axis, in columns: NaN where a run has no value. */
export interface Shares {
  readonly rows: number;
  readonly axes: readonly Float64Array[];
}

export function sharesOf(rows: readonly PlotRow[], axes: readonly Variable[]): Shares {
  return {
    rows: rows.length,
    axes: axes.map((axis) => Float64Array.from(rows, (row) => shareOf(axis, row.values[axis.key]) ?? NaN)),
  };
}

/** Returns where an axis stands. */
export function xOf({ width, left, right }: Frame, place: number, axes: number): number {
  return axes < 2 ? width / 2 : left + (place * (width - left - right)) / (axes - 1);
}

/** Returns the room that an axis at the side needs: for its labels, which stand outside, and for half its name. */
export function sideOf(labels: readonly string[], name: string, letter: number): number {
  const longest = Math.max(0, ...labels.map((label) => label.length));
  return Math.max(LEAST_SIDE, GAP + longest * letter + 4, (name.length * letter) / 2);
}

export function yOf(frame: Size, share: number): number {
  return TOP + (1 - share) * (frame.height - TOP - BOTTOM);
}

/** Returns the share at a height, between 0 and 1. */
export function shareAt(frame: Size, y: number): number {
  return Math.max(0, Math.min(1, 1 - (y - TOP) / (frame.height - TOP - BOTTOM)));
}

/** Returns the place among the axes that is nearest to x. */
export function placeAt({ width, left, right }: Frame, x: number, axes: number): number {
  const apart = (width - left - right) / Math.max(1, axes - 1);
  return Math.max(0, Math.min(axes - 1, Math.round((x - left) / apart)));
}

export interface Scene {
  readonly frame: Frame;
  readonly shares: Shares;
  /** Which runs are within all brushes. */
  readonly kept: readonly boolean[];
  readonly target: Variable;
  readonly targets: Float64Array;
}

/** Paints the runs: those that a brush leaves out pale, the best on top. Runs of one colour are one path. */
export function paint(ctx: CanvasRenderingContext2D, scene: Scene, theme: Theme): void {
  const { frame, shares, kept, target, targets } = scene;
  ctx.clearRect(0, 0, frame.width, frame.height);
  const ramp = rampOf(theme);
  const paths = ramp.map(() => new Path2D());
  const [dimmed, unknown] = [new Path2D(), new Path2D()];
  for (let row = 0; row < shares.rows; row++) {
    const share = targets[row] ?? NaN;
    const own = Number.isNaN(share) ? unknown : (paths[stepOf(share, target.better)] ?? unknown);
    trace(kept[row] ? own : dimmed, frame, shares, row);
  }
  const alpha = Math.max(0.25, Math.min(0.9, 40 / Math.max(1, kept.filter(Boolean).length)));
  stroke(ctx, dimmed, theme.edge, 1, DIMMED);
  stroke(ctx, unknown, theme.muted, 1, alpha * 0.6);
  for (const [step, path] of paths.entries()) stroke(ctx, path, ramp[step] ?? theme.ink, 1, alpha);
}

/** Returns the line of one run as an SVG path. */
export function pathOf(frame: Frame, shares: Shares, row: number): string {
  const parts: string[] = [];
  trace(
    {
      moveTo: (x, y) => void parts.push(`M${x.toFixed(1)} ${y.toFixed(1)}`),
      lineTo: (x, y) => void parts.push(`L${x.toFixed(1)} ${y.toFixed(1)}`),
    },
    frame,
    shares,
    row,
  );
  return parts.join("");
}

/** Returns the run whose line passes nearest to a point, within `most` pixels; -1 without one. */
export function nearest({ frame, shares, kept }: Scene, x: number, y: number, most = 8): number {
  const axes = shares.axes.length;
  let [found, least] = [-1, most];
  for (let place = 0; place + 1 < axes; place++) {
    const [left, right] = [xOf(frame, place, axes), xOf(frame, place + 1, axes)];
    if (x < left || x > right) continue;
    const share = (x - left) / (right - left);
    for (let row = 0; row < shares.rows; row++) {
      if (!kept[row]) continue;
      const [a, b] = [shares.axes[place]?.[row] ?? NaN, shares.axes[place + 1]?.[row] ?? NaN];
      const away = Math.abs(yOf(frame, a + (b - a) * share) - y);
      if (away < least) [found, least] = [row, away];
    }
  }
  return found;
}

/** A run that lacks a value has a gap there. */
function trace(path: Pick<Path2D, "moveTo" | "lineTo">, frame: Frame, { axes }: Shares, row: number): void {
  let isDown = false;
  for (const [place, shares] of axes.entries()) {
    const share = shares[row] ?? NaN;
    if (Number.isNaN(share)) {
      isDown = false;
      continue;
    }
    const [x, y] = [xOf(frame, place, axes.length), yOf(frame, share)];
    if (isDown) path.lineTo(x, y);
    else path.moveTo(x, y);
    isDown = true;
  }
}

function stroke(
  ctx: CanvasRenderingContext2D,
  path: Path2D,
  colour: string,
  width: number,
  alpha: number,
): void {
  ctx.globalAlpha = alpha;
  ctx.strokeStyle = colour;
  ctx.lineWidth = width;
  ctx.stroke(path);
  ctx.globalAlpha = 1;
}
