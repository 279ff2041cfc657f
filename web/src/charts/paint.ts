/** Paints lines and bands on a canvas, from typed rows, at most a few points a pixel, and the marks beside them. */
import { paintEnds } from "./ends";
import { hasBands, type Line } from "./line";
import { paintSeams, paintTicks } from "./marks";
import type { Theme } from "./theme";
import { Trace, type Area } from "./trace";

export interface PaintView {
  readonly smooth: boolean;
  /** Lines are not drawn across the time between attempts. */
  readonly breakAtSeams: boolean;
}

const LINE = 1.5;
/** Of many lines: a browser without a GPU draws a line of one pixel tens of times as fast as a wider one. */
const THIN = 1;
const WIDE_UP_TO = 20;
const MARKED = 2.5;
/** How much of the other lines the ground takes away, where one stands out. */
const FADE = 0.7;
const PALE = 0.65;
const DOTS_UP_TO = 60;

export function paint(
  ctx: CanvasRenderingContext2D,
  area: Area,
  lines: readonly Line[],
  view: PaintView,
  theme: Theme,
): void {
  ctx.save(); // uPlot takes it that the context is as it left it
  ctx.save();
  ctx.beginPath();
  ctx.rect(area.left, area.top, area.width, area.height);
  ctx.clip();
  ctx.lineJoin = "bevel";
  const withBands = hasBands(lines);
  for (const line of lines) paintUnder(ctx, area, line, view, theme, withBands);
  const width = lines.length > WIDE_UP_TO ? THIN : LINE;
  for (const line of lines) paintOver(ctx, area, line, view, theme, width);
  ctx.restore();
  paintSeams(ctx, area, lines, theme);
  for (const line of lines) paintTicks(ctx, area, line, theme, withBands);
  paintEnds(ctx, area, lines, view.smooth, theme);
  ctx.restore();
}

/** Fades all lines and paints those of one job over them. `area` is the whole canvas. */
export function paintMarked(
  ctx: CanvasRenderingContext2D,
  area: Area,
  lines: readonly Line[],
  view: PaintView,
  theme: Theme,
): void {
  ctx.save();
  ctx.fillStyle = theme.bg;
  ctx.globalAlpha = FADE;
  ctx.fillRect(area.left, area.top, area.width, area.height);
  ctx.globalAlpha = 1;
  ctx.lineJoin = "bevel";
  for (const line of lines) paintOver(ctx, area, line, view, theme, MARKED);
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
  width: number,
): void {
  const colour = theme.series[line.colour.slot - 1] ?? theme.ink;
  const values = line.shown(view.smooth);
  const trace = new Trace(area, line, line.columns, view.breakAtSeams);
  ctx.globalAlpha = line.colour.isPale ? PALE : 1;
  stroke(ctx, area, colour, width, line.colour.dash, trace.path(values));
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
