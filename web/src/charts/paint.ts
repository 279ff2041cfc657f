/** Paints lines, bands, seams and ticks at the edge on a canvas, from typed rows, at most a few points a pixel. */
import type { Columns } from "./columns";
import { BANDS_UP_TO, type Line } from "./line";
import { rowsWithin, type Span } from "./range";
import type { Theme } from "./theme";

/** Where values lie on the canvas, in its pixels. */
export interface Area {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
  /** Pixels of the canvas for one of the page. */
  readonly ratio: number;
  readonly x: Span;
  readonly y: Span;
  readonly log: boolean;
}

export interface PaintView {
  readonly smooth: boolean;
  /** Lines are not drawn across the time between attempts. */
  readonly breakAtSeams: boolean;
}

const LINE = 1.5;
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
  const hasBands = lines.length <= BANDS_UP_TO;
  for (const line of lines) paintUnder(ctx, area, line, view, theme, hasBands);
  for (const line of lines) paintOver(ctx, area, line, view, theme);
  for (const line of lines) paintTicks(ctx, area, line, theme, hasBands);
  ctx.restore();
}

/** Returns where a value lies on the canvas from top to bottom; NaN where a logarithmic axis has no place for it. */
export function yOf(area: Area, value: number): number {
  const { min, max } = area.y;
  const share = area.log ? Math.log(value / min) / Math.log(max / min) : (value - min) / (max - min);
  return area.top + area.height * (1 - share);
}

/** Returns where x lies on the canvas from left to right. */
export function xOf(area: Area, x: number): number {
  return area.left + (area.width * (x - area.x.min)) / (area.x.max - area.x.min);
}

function paintUnder(
  ctx: CanvasRenderingContext2D,
  area: Area,
  line: Line,
  view: PaintView,
  theme: Theme,
  hasBands: boolean,
): void {
  const colour = theme.series[line.colour.slot - 1] ?? theme.ink;
  const trace = new Trace(area, line, line.columns, view.breakAtSeams);
  ctx.fillStyle = colour;
  const smooth = view.smooth && line.isSmoothed();
  ctx.globalAlpha = smooth ? 0.1 : 0.18;
  if (hasBands && trace.hasBand()) ctx.fill(trace.band());
  if (smooth && hasBands) {
    ctx.globalAlpha = 0.25;
    stroke(ctx, area, colour, 1, line.colour.dash, trace.path(line.columns.mean));
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
  stroke(ctx, area, colour, LINE, line.colour.dash, trace.path(values));
  if (trace.rows > DOTS_UP_TO) return;
  ctx.fillStyle = colour;
  trace.dots(ctx, values, 2 * area.ratio);
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

/** The visible rows of one line, and one more on both sides, so that it reaches the edges. */
class Trace {
  readonly #from: number;
  readonly #to: number;

  constructor(
    readonly area: Area,
    readonly line: Line,
    readonly columns: Columns,
    readonly breakAtSeams: boolean,
  ) {
    const [from, to] = columns === line.columns ? rowsWithin(line, area.x) : [0, columns.length];
    this.#from = Math.max(0, from - 1);
    this.#to = Math.min(columns.length, to + 1);
  }

  get rows(): number {
    return this.#to - this.#from;
  }

  /** Returns the line through values. Within one pixel it keeps first, lowest, highest and last. */
  path(values: Float64Array): Path2D {
    const path = new Path2D();
    const least = this.area.ratio;
    let isDown = false;
    let [column, low, high, last] = [NaN, NaN, NaN, NaN];
    const flush = (): void => {
      if (last - low > least) path.lineTo(column, low);
      if (high - last > least) path.lineTo(column, high);
      path.lineTo(column, last);
    };
    for (let i = this.#from; i < this.#to; i++) {
      const y = this.#y(values[i] ?? NaN);
      if (!Number.isFinite(y) || (isDown && this.#breaksAt(i))) {
        if (isDown) flush();
        isDown = false;
        if (!Number.isFinite(y)) continue;
      }
      const x = this.#x(i);
      if (isDown && x === column) {
        if (y < low) low = y;
        if (y > high) high = y;
        last = y;
        continue;
      }
      if (isDown) flush();
      if (isDown) path.lineTo(x, y);
      else path.moveTo(x, y);
      isDown = true;
      [column, low, high, last] = [x, y, y, y];
    }
    if (isDown) flush();
    return path;
  }

  hasBand(): boolean {
    const { min, max } = this.columns;
    for (let i = this.#from; i < this.#to; i++) if ((max[i] ?? NaN) > (min[i] ?? NaN)) return true;
    return false;
  }

  /** Returns the area between the lowest and the highest value of each row. */
  band(): Path2D {
    const path = new Path2D();
    let start = this.#from;
    for (let i = this.#from; i <= this.#to; i++) {
      const ends =
        i === this.#to ||
        !Number.isFinite(this.#y(this.columns.max[i] ?? NaN)) ||
        (i > start && this.#breaksAt(i));
      if (!ends) continue;
      this.#bandRun(path, start, i);
      start = i < this.#to && Number.isFinite(this.#y(this.columns.max[i] ?? NaN)) ? i : i + 1;
    }
    return path;
  }

  dots(ctx: CanvasRenderingContext2D, values: Float64Array, radius: number): void {
    ctx.beginPath();
    for (let i = this.#from; i < this.#to; i++) {
      const y = this.#y(values[i] ?? NaN);
      if (!Number.isFinite(y)) continue;
      ctx.moveTo(this.#x(i) + radius, y);
      ctx.arc(this.#x(i), y, radius, 0, 2 * Math.PI);
    }
    ctx.fill();
  }

  #bandRun(path: Path2D, from: number, to: number): void {
    if (to - from < 2) return;
    const floor = this.area.top + this.area.height;
    path.moveTo(this.#x(from), this.#y(this.columns.max[from] ?? NaN));
    for (let i = from + 1; i < to; i++) path.lineTo(this.#x(i), this.#y(this.columns.max[i] ?? NaN));
    for (let i = to - 1; i >= from; i--) {
      const y = this.#y(this.columns.min[i] ?? NaN);
      path.lineTo(this.#x(i), Number.isFinite(y) ? y : floor);
    }
    path.closePath();
  }

  #breaksAt(row: number): boolean {
    return this.breakAtSeams && this.columns.attempt[row] !== this.columns.attempt[row - 1];
  }

  #x(row: number): number {
    return Math.round(xOf(this.area, this.line.x(row, this.columns)));
  }

  /** Far values end a screen away: a canvas draws lines to 1e9 wrongly. */
  #y(value: number): number {
    if (!Number.isFinite(value)) return NaN;
    const y = yOf(this.area, value);
    const { top, height } = this.area;
    return Number.isNaN(y) || (this.area.log && value <= 0)
      ? NaN
      : Math.max(top - height, Math.min(top + 2 * height, y));
  }
}

/** Draws a dashed line where an attempt resumed. With one job, the line names the attempt. */
function paintSeams(ctx: CanvasRenderingContext2D, area: Area, lines: readonly Line[], theme: Theme): void {
  const { ratio } = area;
  ctx.font = `${11 * ratio}px ${theme.bodyFont}`;
  ctx.textBaseline = "top";
  ctx.textAlign = "left";
  for (const line of lines) {
    let free = -Infinity;
    for (const seam of line.seams()) {
      if (seam.x < area.x.min || seam.x > area.x.max) continue;
      const x = Math.round(xOf(area, seam.x)) + 0.5;
      const path = new Path2D();
      path.moveTo(x, area.top);
      path.lineTo(x, area.top + area.height);
      const own = theme.series[line.colour.slot - 1] ?? theme.edge;
      ctx.globalAlpha = lines.length > 1 ? 0.45 : 0.8;
      stroke(ctx, area, lines.length > 1 ? own : theme.edge, 1, [2, 3], path);
      ctx.globalAlpha = 1;
      if (lines.length > 1 || x < free) continue;
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
  hasBands: boolean,
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
    if ((hasBands ? (columns.max[i] ?? NaN) : mean) > area.y.max) triangle(ctx, own, x, area.top, size);
    else if ((hasBands ? (columns.min[i] ?? NaN) : mean) < area.y.min && !area.log)
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
