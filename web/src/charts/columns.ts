/** The rows of one series in typed arrays: what the service sent, and what came live since. Memory is bounded. */
import type { Curve, WireNumber } from "../api/curves";
import { Ema } from "./ema";
import { nextDoubling } from "./smoothing";

/** Above this many rows, neighbours are joined until about half as many are left. */
export const MOST_ROWS = 4096;

const FLOATS = ["step", "time", "mean", "min", "max", "ema"] as const;
const COUNTS = ["attempt", "weight", "nonfinite"] as const;

export class Columns {
  length = 0;
  /** The newest value, or null. */
  newest: number | null = null;
  /** Points that the rows stand for. */
  points = 0;
  step = new Float64Array(0);
  time = new Float64Array(0);
  mean = new Float64Array(0);
  min = new Float64Array(0);
  max = new Float64Array(0);
  ema = new Float64Array(0);
  attempt = new Uint32Array(0);
  /** Points of each row. */
  weight = new Uint32Array(0);
  nonfinite = new Uint32Array(0);
  #ema: Ema;
  /** Points that a live row takes in, so that it is as coarse as the rows before it. */
  #share = 1;
  /** From how many points on the service smooths it more. */
  #enough = nextDoubling(0);

  /** `smooth`: the weight of the past in the average, of one point. */
  constructor(readonly smooth: number) {
    this.#ema = new Ema(smooth);
  }

  /** Returns rows of zeros, to be filled. */
  static empty(rows: number): Columns {
    const found = new Columns(0);
    found.#reserve(rows);
    return found;
  }

  /** Takes over what the service answered. */
  static of(curve: Pick<Curve, "points" | "columns">, smooth: number): Columns {
    const found = new Columns(smooth);
    const { step, time, attempt, mean, min, max, ema, nonfinite } = curve.columns;
    const rows = step.length;
    found.#reserve(rows);
    let bad = 0;
    let placed = 0;
    for (let i = 0; i < rows; i++) {
      const value = numberOf(mean[i]);
      const share = Math.round((curve.points * (i + 1)) / rows) - placed;
      const missing = nonfinite?.[i] ?? (Number.isFinite(value) ? 0 : 1);
      found.#put(i, step[i] ?? 0, time[i] ?? 0, attempt[i] ?? 1, value, ema ? numberOf(ema[i]) : value);
      if (min && max) {
        found.min[i] = numberOf(min[i]);
        found.max[i] = numberOf(max[i]);
      }
      found.weight[i] = Math.max(1, share);
      found.nonfinite[i] = missing;
      placed += share;
      bad += missing;
    }
    found.length = rows;
    found.points = curve.points;
    found.#enough = nextDoubling(curve.points);
    found.newest = found.mean[rows - 1] ?? null;
    found.#share = Math.max(1, Math.round(curve.points / Math.max(1, rows)));
    const last = found.#lastFinite(found.ema);
    found.#ema = Ema.after(smooth, last, curve.points - bad);
    return found;
  }

  /** Adds one point that came live. A point that is already there changes nothing. */
  append(step: number, time: number, attempt: number, value: number): void {
    const last = this.length - 1;
    if (last >= 0) {
      const newest = this.attempt[last] ?? 0;
      if (attempt < newest || (attempt === newest && step <= (this.step[last] ?? 0))) return;
      if (attempt > newest) this.#dropFrom(step);
    }
    if (this.length >= MOST_ROWS) this.#thin();
    this.#reserve(this.length + 1);
    const row = this.length;
    this.#put(row, step, time, attempt, value, this.#ema.next(value));
    this.weight[row] = 1;
    this.nonfinite[row] = Number.isFinite(value) ? 0 : 1;
    this.points += 1;
    this.newest = value;
    const before = row - 1;
    if (before >= 0 && this.attempt[before] === attempt && (this.weight[before] ?? 0) < this.#share)
      this.#join(before, row);
    else this.length += 1;
  }

  /** Says whether it has so many points now that the service would smooth it more. */
  isOutgrown(): boolean {
    return this.smooth > 0 && this.points >= this.#enough;
  }

  /** Returns the first row at or after `x` of the given non-decreasing place of rows. */
  firstAtOrAfter(x: number, place: (row: number) => number): number {
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (place(middle) < x) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #put(row: number, step: number, time: number, attempt: number, value: number, ema: number): void {
    this.step[row] = step;
    this.time[row] = time;
    this.attempt[row] = attempt;
    this.mean[row] = value;
    this.min[row] = value;
    this.max[row] = value;
    this.ema[row] = Number.isFinite(value) ? ema : NaN; // so that no line runs through what is not there
  }

  /** Removes rows at and after a step that a later attempt repeats, and takes the average back to there. */
  #dropFrom(step: number): void {
    const kept = this.firstAtOrAfter(step, (row) => this.step[row] ?? 0);
    if (kept === this.length) return;
    this.length = kept;
    let points = 0;
    let bad = 0;
    for (let i = 0; i < kept; i++) {
      points += this.weight[i] ?? 0;
      bad += this.nonfinite[i] ?? 0;
    }
    this.points = points;
    this.#ema = Ema.after(this.smooth, this.#lastFinite(this.ema), points - bad);
  }

  #lastFinite(values: Float64Array): number {
    for (let i = this.length - 1; i >= 0; i--) {
      const value = values[i] ?? NaN;
      if (Number.isFinite(value)) return value;
    }
    return NaN;
  }

  /** Joins neighbours of one attempt until a row stands for about as many points as any other. */
  #thin(): void {
    const target = Math.max(2, Math.ceil(this.points / (MOST_ROWS / 2)));
    this.#share = target;
    let kept = 0;
    for (let i = 1; i < this.length; i++) {
      const together = (this.weight[kept] ?? 0) + (this.weight[i] ?? 0);
      if (together <= target && this.attempt[kept] === this.attempt[i]) this.#join(kept, i);
      else {
        kept += 1;
        for (const name of [...FLOATS, ...COUNTS]) this[name][kept] = this[name][i] ?? 0;
      }
    }
    this.length = kept + 1;
  }

  #join(into: number, row: number): void {
    const finiteBefore = (this.weight[into] ?? 0) - (this.nonfinite[into] ?? 0);
    const finiteHere = (this.weight[row] ?? 0) - (this.nonfinite[row] ?? 0);
    if (finiteBefore <= 0)
      for (const name of ["mean", "min", "max"] as const) this[name][into] = this[name][row] ?? NaN;
    else if (finiteHere > 0) {
      const all = finiteBefore + finiteHere;
      this.mean[into] = ((this.mean[into] ?? 0) * finiteBefore + (this.mean[row] ?? 0) * finiteHere) / all;
      this.min[into] = Math.min(this.min[into] ?? NaN, this.min[row] ?? NaN);
      this.max[into] = Math.max(this.max[into] ?? NaN, this.max[row] ?? NaN);
    }
    for (const name of ["step", "time"] as const) this[name][into] = this[name][row] ?? 0;
    if (finiteHere > 0) this.ema[into] = this.ema[row] ?? NaN;
    this.weight[into] = (this.weight[into] ?? 0) + (this.weight[row] ?? 0);
    this.nonfinite[into] = (this.nonfinite[into] ?? 0) + (this.nonfinite[row] ?? 0);
  }

  #reserve(rows: number): void {
    if (rows <= this.step.length) return;
    const size = Math.max(64, Math.min(MOST_ROWS, 2 ** Math.ceil(Math.log2(rows))), rows);
    for (const name of FLOATS) this[name] = grown(this[name], new Float64Array(size));
    for (const name of COUNTS) this[name] = grown(this[name], new Uint32Array(size));
  }
}

/** Returns a JSON number, and NaN for no value. */
export function numberOf(value: WireNumber | string | undefined): number {
  return typeof value === "number" ? value : Number(value ?? NaN);
}

function grown<T extends Float64Array | Uint32Array>(old: T, bigger: T): T {
  bigger.set(old);
  return bigger;
}
