/** Paints what is marked beside the lines: where attempts resumed, and what the lines do not show. */
import type { Line } from "./line";
import { rowsWithin } from "./range";
import type { Theme } from "./theme";
import { xOf, type Area } from "./trace";

/** Pixels of the page: a mark beyond the edge, which the room above the plot holds, and the names of attempts over it. */
const MARK = 6;
const NAMES = 12;

/** Returns how much room the marks need above the plot. */
export function roomAbove(lines: readonly Line[]): number {
  const hasNames = isOfOneJob(lines) && (lines[0]?.seams() ?? []).length > 0;
  return hasNames ? MARK + NAMES : MARK;
}

/** Draws a dashed line where an attempt resumed. Of one job, the attempt's name stands above it. */
export function paintSeams(
  ctx: CanvasRenderingContext2D,
  area: Area,
  lines: readonly Line[],
  theme: Theme,
): void {
  const isAlone = isOfOneJob(lines);
  const ofJobs = [...new Map(lines.map((line) => [line.jobId, line])).values()];
  ctx.lineWidth = area.ratio;
  ctx.setLineDash([2 * area.ratio, 3 * area.ratio]);
  for (const line of ofJobs) {
    const seams = line.seams().filter(({ x }) => x >= area.x.min && x <= area.x.max);
    ctx.globalAlpha = isAlone ? 0.8 : 0.45;
    ctx.strokeStyle = (isAlone ? null : theme.series[line.colour.slot - 1]) ?? theme.edge;
    ctx.beginPath();
    for (const seam of seams) {
      const x = Math.round(xOf(area, seam.x)) + 0.5;
      ctx.moveTo(x, area.top - (isAlone ? MARK * area.ratio : 0));
      ctx.lineTo(x, area.top + area.height);
    }
    ctx.stroke();
    ctx.globalAlpha = 1;
    if (isAlone) paintNames(ctx, area, seams, theme);
  }
  ctx.setLineDash([]);
}

/** Marks at the edge what the line does not show: values out of the range, and what is not finite. */
export function paintTicks(
  ctx: CanvasRenderingContext2D,
  area: Area,
  line: Line,
  theme: Theme,
  withBands: boolean,
): void {
  const { columns } = line;
  const [from, to] = rowsWithin(line, area.x);
  const bottom = area.top + area.height;
  const size = MARK * area.ratio;
  const own = theme.series[line.colour.slot - 1] ?? theme.ink;
  const above = new Row(ctx, area, own, area.top, -size);
  const below = new Row(ctx, area, own, bottom, size);
  for (let i = from; i < to; i++) {
    const x = Math.round(xOf(area, line.x(i)));
    const mean = columns.mean[i] ?? NaN;
    if ((columns.nonfinite[i] ?? 0) > 0) {
      ctx.fillStyle = theme.failed;
      const top = mean === Infinity ? area.top : bottom - size * 1.5;
      ctx.fillRect(x - area.ratio, top, 2 * area.ratio, size * 1.5);
    }
    if ((withBands ? (columns.max[i] ?? NaN) : mean) > area.y.max) above.add(x);
    else if ((withBands ? (columns.min[i] ?? NaN) : mean) < area.y.min && !area.log) below.add(x);
  }
}

/** Triangles beyond one edge, which point away from the plot. They stand beside one another, never over the axis. */
class Row {
  #free = -Infinity;

  constructor(
    readonly ctx: CanvasRenderingContext2D,
    readonly area: Area,
    readonly colour: string,
    readonly edge: number,
    /** How far they point: up with a negative size. */
    readonly size: number,
  ) {}

  add(x: number): void {
    const { ctx, area, edge, size } = this;
    const half = Math.abs(size) / 2;
    const at = Math.max(area.left + half, Math.min(area.left + area.width - half, x));
    if (at < this.#free) return;
    this.#free = at + 2 * half + area.ratio;
    ctx.fillStyle = this.colour;
    ctx.beginPath();
    ctx.moveTo(at, edge + size);
    ctx.lineTo(at - half, edge);
    ctx.lineTo(at + half, edge);
    ctx.fill();
  }
}

/** Writes the names of attempts above the plot, as many as have room beside one another. */
function paintNames(
  ctx: CanvasRenderingContext2D,
  area: Area,
  seams: readonly { readonly attempt: number; readonly x: number }[],
  theme: Theme,
): void {
  const { ratio } = area;
  ctx.font = `${11 * ratio}px ${theme.bodyFont}`;
  ctx.textBaseline = "bottom";
  ctx.textAlign = "left";
  ctx.fillStyle = theme.muted;
  let free = -Infinity;
  for (const { attempt, x } of seams) {
    const text = `attempt ${attempt}`;
    const width = ctx.measureText(text).width;
    const left = Math.min(xOf(area, x), area.left + area.width - width);
    if (left < free) continue;
    ctx.fillText(text, left, area.top - MARK * ratio);
    free = left + width + 8 * ratio;
  }
}

function isOfOneJob(lines: readonly Line[]): boolean {
  return new Set(lines.map(({ jobId }) => jobId)).size === 1;
}
