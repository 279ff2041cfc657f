/** A range of values that no outlier sets: what lies far out has the place of the nearest value that does not. */
import { isValue, type PlotRow, type Variable } from "./rows";

/** Interquartile ranges beyond the quartiles from which on a value lies far out. */
const FAR = 3;

export interface RobustRange {
  readonly min: number;
  readonly max: number;
  /** How many values lie beyond it. */
  readonly beyond: number;
}

/** Returns the range of a variable of numbers; null where no row has one. */
export function robustRange(rows: readonly PlotRow[], variable: Variable): RobustRange | null {
  const values = rows.flatMap((row) => numberOf(row, variable) ?? []);
  if (values.length === 0) return null;
  const scaled = values.map((value) => (variable.isLog ? Math.log(value) : value)).sort((a, b) => a - b);
  const [lower, upper] = [quantile(scaled, 0.25), quantile(scaled, 0.75)];
  const room = FAR * (upper - lower);
  const within = scaled.filter((value) => value >= lower - room && value <= upper + room);
  const back = (value: number): number => (variable.isLog ? Math.exp(value) : value);
  return {
    min: back(within[0] ?? lower),
    max: back(within.at(-1) ?? upper),
    beyond: values.length - within.length,
  };
}

/** Returns where each row's value lies in the range, from 0 to 1, what is beyond at its end; NaN without a value. */
export function robustShares(rows: readonly PlotRow[], variable: Variable): Float64Array {
  const range = robustRange(rows, variable);
  return Float64Array.from(rows, (row) => {
    const value = numberOf(row, variable);
    return value === null || range === null ? NaN : shareWithin(range, value, variable.isLog);
  });
}

/** Returns where a value lies in a range, from 0 to 1. */
export function shareWithin(
  { min, max }: Pick<RobustRange, "min" | "max">,
  value: number,
  isLog: boolean,
): number {
  if (max === min) return value < min ? 0 : value > max ? 1 : 0.5;
  const share = isLog ? Math.log(value / min) / Math.log(max / min) : (value - min) / (max - min);
  return Math.max(0, Math.min(1, share));
}

function numberOf({ values }: PlotRow, { key }: Variable): number | null {
  const value = values[key] ?? null;
  return typeof value === "number" && isValue(value) ? value : null;
}

/** Returns the value below which a share of the sorted ones lies, between the two that are nearest to it. */
function quantile(sorted: readonly number[], share: number): number {
  const at = (sorted.length - 1) * share;
  const [low, high] = [sorted[Math.floor(at)] ?? 0, sorted[Math.ceil(at)] ?? 0];
  return low + (high - low) * (at - Math.floor(at));
}
