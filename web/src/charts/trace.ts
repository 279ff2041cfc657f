/** Turns the visible rows of a line into paths on a canvas, of at most a few points a pixel. */
import type { Columns } from "./columns";
import type { Line } from "./line";
import { rowsWithin } from "./range";
import type { Span } from "./span";

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

/** The visible rows of one line, and one more on both sides, so that it reaches the edges. */
export class Trace {
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

/** Returns where a value lies on the canvas from top to bottom; NaN where a logarithmic axis has no place for it. */
export function yOf(area: Area, value: number): number {
  return area.top + area.height * (1 - shareOf(area, value));
}

/** Returns how far up the y axis a value lies, from 0 to 1. */
export function shareOf({ y: { min, max }, log }: Pick<Area, "y" | "log">, value: number): number {
  return log ? Math.log(value / min) / Math.log(max / min) : (value - min) / (max - min);
}

/** Returns where x lies on the canvas from left to right. */
export function xOf(area: Area, x: number): number {
  return area.left + (area.width * (x - area.x.min)) / (area.x.max - area.x.min);
}
