/** One curve of a job in one chart. */
import type { Place, Seam } from "./axis";
import type { Colour } from "./colours";
import type { Columns } from "./columns";
import { isEnough, isMeasured } from "./smoothing";
import type { Span } from "./span";

const BANDS_UP_TO = 4;

/** Says whether bands and raw curves are drawn: of many lines they would hide them, but for the bands of groups. */
export function hasBands(lines: readonly Line[]): boolean {
  return lines.length <= BANDS_UP_TO || lines.some((line) => line.isBand);
}

/** Jobs that are shown as one line. */
export interface LineGroup {
  readonly id: string;
  readonly name: string;
  readonly colour: Colour;
  /** Ids of its jobs. */
  readonly jobs: readonly string[];
}

/** How the lines of groups are made. */
export interface JoinView {
  /** Whether the lines are smoothed: the spread is that of what is drawn. */
  readonly smooth: boolean;
  /** The band reaches from the least to the greatest, instead of one standard deviation to both sides. */
  readonly isRange: boolean;
}

/** Makes one line of the lines of several jobs, for each key. */
export type Join = (lines: readonly Line[], view: JoinView) => readonly Line[];

/** What is drawn of a line. */
export interface Drawn {
  readonly jobId: string;
  /** The job's name. */
  readonly job: string;
  readonly key: string;
  /** The part of the data that tells it from others of its job, such as `val`; null where it has none beside it. */
  readonly part: string | null;
  /** What tells it from the other lines of its chart. */
  readonly name: string;
  readonly colour: Colour;
  readonly columns: Columns;
  readonly place: Place;
  /** Tails that a later attempt replaced. */
  readonly ghosts?: readonly Columns[];
  /** All rows, where `columns` are finer ones of a part. */
  readonly whole?: Columns;
}

export class Line {
  /** Whether it stands for several jobs. */
  readonly isBand: boolean = false;
  readonly id: string;
  readonly jobId: string;
  readonly job: string;
  readonly key: string;
  readonly part: string | null;
  readonly name: string;
  readonly colour: Colour;
  readonly columns: Columns;
  readonly place: Place;
  readonly ghosts: readonly Columns[];
  readonly whole: Columns;

  constructor(drawn: Drawn) {
    this.id = `${drawn.jobId} ${drawn.key}`;
    this.jobId = drawn.jobId;
    this.job = drawn.job;
    this.key = drawn.key;
    this.part = drawn.part;
    this.name = drawn.name;
    this.colour = drawn.colour;
    this.columns = drawn.columns;
    this.place = drawn.place;
    this.ghosts = drawn.ghosts ?? [];
    this.whole = drawn.whole ?? drawn.columns;
  }

  /** The jobs' own lines, from which this one is made. */
  get sources(): readonly Line[] {
    return [this];
  }

  /** Returns the place of a row on the x axis. */
  x(row: number, columns: Columns = this.columns): number {
    return this.place.at(columns.step[row] ?? NaN, columns.time[row] ?? NaN, columns.attempt[row] ?? 1);
  }

  seams(): readonly Seam[] {
    return this.place.seams();
  }

  /** Says whether its average is drawn. A few points are drawn as they are: smoothed, they would only come late. */
  isSmoothed(): boolean {
    return isMeasured(this.key) && isEnough(this.whole.points, this.whole.smooth);
  }

  /** Says whether it would be smoothed if there were more points. */
  hasTooFewPoints(): boolean {
    return isMeasured(this.key) && !isEnough(this.whole.points, this.whole.smooth);
  }

  /** Returns the values of the line itself: smoothed where that is asked for and makes sense. */
  shown(smooth: boolean): Float64Array {
    return smooth && this.isSmoothed() ? this.columns.ema : this.columns.mean;
  }

  /** Returns the newest value, or null. */
  last(): number | null {
    return this.whole.newest;
  }

  /** Returns the row nearest to x, or -1 where the line has none there. */
  nearest(x: number): number {
    const { length } = this.columns;
    if (length === 0) return -1;
    const after = this.columns.firstAtOrAfter(x, (row) => this.x(row));
    if (after === length) return this.x(length - 1) >= x - this.#gap() ? length - 1 : -1;
    if (after === 0) return this.x(0) <= x + this.#gap() ? 0 : -1;
    return x - this.x(after - 1) <= this.x(after) - x ? after - 1 : after;
  }

  /** How far from its ends a line is still read: two of its mean distances. */
  #gap(): number {
    const { length } = this.columns;
    return length < 2 ? 0 : (2 * (this.x(length - 1) - this.x(0))) / (length - 1);
  }
}

/** Returns the range of x that rows at their places cover together, or null where there is no row. */
export function extentOf(parts: Iterable<readonly [Place, Columns]>): Span | null {
  let [min, max] = [Infinity, -Infinity];
  for (const [place, { step, time, attempt, length }] of parts) {
    if (length === 0) continue;
    const last = length - 1;
    min = Math.min(min, place.at(step[0] ?? NaN, time[0] ?? NaN, attempt[0] ?? 1));
    max = Math.max(max, place.at(step[last] ?? NaN, time[last] ?? NaN, attempt[last] ?? 1));
  }
  if (!(min <= max)) return null;
  return min === max ? { min: min - 1, max: max + 1 } : { min, max };
}
