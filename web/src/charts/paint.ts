/** Paints lines, bands, seams and ticks at the edge on a canvas, from typed rows, at most a few points a pixel. */
import { hasBands, type Line } from "./line";
import { rowsWithin } from "./range";
import type { Theme } from "./theme";
import { Trace, xOf, type Area } from "./trace";

export interface PaintView {
  readonly smooth: boolean;
  /** Lines are not drawn across the time between attempts. */
  readonly breakAtSeams: boolean;
}

const LINE = 1.5;
const PALE = 0.65;
const DOTS_UP_TO = 60;

export function paint(
  ctx: CanvasRenderingContext2D,
  area: Area,
  lines: readonly Line[],
  view: PaintView,
  theme: Theme,
): void {
  ctx.save();
  ctx.beginPath();
  ctx.rect(area.left, area.top, area.width, area.height);
  ctx.clip();
  ctx.lineJoin = "bevel";
  paintSeams(ctx, area, lines, theme);
  const withBands = hasBands(lines);
  for (const line of lines) paintUnder(ctx, area, line, view, theme, withBands);
  for (const line of lines) paintOver(ctx, area, line, view, theme);
  for (const line of lines) paintTicks(ctx, area, line, theme, withBands);
  ctx.restore();
}

function paintUnder(
  ctx: CanvasRenderingContext2D,
  area: Area,
  line: Line,
  view: PaintView,
  theme: Theme,
  withBands: boolean,
): void {
  const colour = theme.series[line.colour.slot - 1] ?? theme.ink;
  const trace = new Trace(area, line, line.columns, view.breakAtSeams);
  const share = line.colour.isPale ? PALE : 1;
  ctx.fillStyle = colour;
  const smooth = view.smooth && line.isSmoothed();
  ctx.globalAlpha = share * (smooth && !line.isBand ? 0.1 : 0.18);
  if (withBands && trace.hasBand()) ctx.fill(trace.band());
  if (smooth && withBands) {
    ctx.globalAlpha = share * 0.25;
    stroke(ctx, area, colour, 1, line.colour.isPale ? [] : line.colour.dash, trace.path(line.columns.mean));
  }
  ctx.globalAlpha = 0.45;
  for (const ghost of line.ghosts)
    stroke(
      ctx,
      area,
      colour,
      1,
      [2, 3],
      new Trace(area, line, ghost, false).path(smooth ? ghost.ema : ghost.mean),
    );
  ctx.globalAlpha = 1;
}

function paintOver(
  ctx: CanvasRenderingContext2D,
  area: Area,
  line: Line,
  view: PaintView,
  theme: Theme,
): void {
  const colour = theme.series[line.colour.slot - 1] ?? theme.ink;
  const values = line.shown(view.smooth);
  const trace = new Trace(area, line, line.columns, view.breakAtSeams);
  ctx.globalAlpha = line.colour.isPale ? PALE : 1;
  stroke(ctx, area, colour, LINE, line.colour.dash, trace.path(values));
  ctx.fillStyle = colour;
  if (trace.rows <= DOTS_UP_TO) trace.dots(ctx, values, 2 * area.ratio);
  ctx.globalAlpha = 1;
}

function stroke(
  ctx: CanvasRenderingContext2D,
  area: Area,
  colour: string,
  width: number,
  dash: readonly number[],
  path: Path2D,
): void {
  ctx.strokeStyle = colour;
  ctx.lineWidth = width * area.ratio;
  ctx.setLineDash(dash.map((length) => length * area.ratio));
  ctx.stroke(path);
  ctx.setLineDash([]);
}

/** Draws a dashed line where an attempt resumed. With one job, the line names the attempt. */
function paintSeams(ctx: CanvasRenderingContext2D, area: Area, lines: readonly Line[], theme: Theme): void {
  const { ratio } = area;
  ctx.font = `${11 * ratio}px ${theme.bodyFont}`;
  ctx.textBaseline = "top";
  ctx.textAlign = "left";
  const ofJobs = [...new Map(lines.map((line) => [line.jobId, line])).values()];
  const isAlone = ofJobs.length === 1;
  for (const line of ofJobs) {
    let free = -Infinity;
    for (const seam of line.seams()) {
      if (seam.x < area.x.min || seam.x > area.x.max) continue;
      const x = Math.round(xOf(area, seam.x)) + 0.5;
      const path = new Path2D();
      path.moveTo(x, area.top);
      path.lineTo(x, area.top + area.height);
      const own = theme.series[line.colour.slot - 1] ?? theme.edge;
      ctx.globalAlpha = isAlone ? 0.8 : 0.45;
      stroke(ctx, area, isAlone ? theme.edge : own, 1, [2, 3], path);
      ctx.globalAlpha = 1;
      if (!isAlone || x < free) continue;
      const text = `attempt ${seam.attempt}`;
      const width = ctx.measureText(text).width;
      const fits = x + width + 6 * ratio < area.left + area.width;
      ctx.fillStyle = theme.muted;
      ctx.fillText(text, fits ? x + 4 * ratio : x - width - 4 * ratio, area.top + 2 * ratio);
      free = x + width + 12 * ratio;
    }
  }
}

/** Marks at the edge what the line does not show: values out of the range, and what is not finite. */
function paintTicks(
  ctx: CanvasRenderingContext2D,
  area: Area,
  line: Line,
  theme: Theme,
  withBands: boolean,
): void {
  const { columns } = line;
  const [from, to] = rowsWithin(line, area.x);
  const bottom = area.top + area.height;
  const size = 6 * area.ratio;
  const own = theme.series[line.colour.slot - 1] ?? theme.ink;
  for (let i = from; i < to; i++) {
    const x = Math.round(xOf(area, line.x(i)));
    const mean = columns.mean[i] ?? NaN;
    if ((columns.nonfinite[i] ?? 0) > 0) {
      ctx.fillStyle = theme.failed;
      ctx.fillRect(
        x - area.ratio,
        mean === Infinity ? area.top : bottom - size * 1.5,
        2 * area.ratio,
        size * 1.5,
      );
    }
    if ((withBands ? (columns.max[i] ?? NaN) : mean) > area.y.max) triangle(ctx, own, x, area.top, size);
    else if ((withBands ? (columns.min[i] ?? NaN) : mean) < area.y.min && !area.log)
      triangle(ctx, own, x, bottom, -size);
  }
}

/** Points to the edge at which it stands: up with a positive size. */
function triangle(
  ctx: CanvasRenderingContext2D,
  colour: string,
  x: number,
  edge: number,
  size: number,
): void {
  ctx.fillStyle = colour;
  ctx.beginPath();
  ctx.moveTo(x, edge);
  ctx.lineTo(x - size / 2, edge + size);
  ctx.lineTo(x + size / 2, edge + size);
  ctx.fill();
}
