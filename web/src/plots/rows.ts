/** What plots show: runs with named values, and the variables that the values are of. */
import { natural } from "../text/natural";
import type { Better } from "./direction";

export type PlotValue = number | string | null;

export interface PlotRow {
  /** Of the run's job. */
  readonly id: string;
  readonly name: string;
  readonly values: Readonly<Record<string, PlotValue>>;
}

/** A variable, as who has the rows knows it. */
export interface Named {
  readonly key: string;
  /** As short as it can be. */
  readonly title: string;
  /** Whether it is what comes out; if not, it is what was set. */
  readonly isMetric: boolean;
  readonly better: Better | null;
  /** Whether it was drawn from a logarithmic range; unknown if left out. */
  readonly isLog?: boolean;
}

export interface Variable extends Named {
  /** The values of a variable that is no number, in their order; null for numbers. */
  readonly categories: readonly string[] | null;
  /** All different numbers of a setting, where they are few and come again: they are the labels of the axis. */
  readonly few: readonly number[] | null;
  readonly isLog: boolean;
  readonly min: number;
  readonly max: number;
}

/** Settings over two decades or more are taken for logarithmic, metrics over three. */
const LOG_FROM = { setting: 100, metric: 1000 } as const;

const FEW = 6;

/** Returns the variables of which there is a value, with the ranges of their values. */
export function variablesOf(rows: readonly PlotRow[], named: readonly Named[]): readonly Variable[] {
  return named.flatMap((one): readonly Variable[] => {
    const values = rows.map((row) => row.values[one.key] ?? null).filter(isValue);
    if (values.length === 0) return [];
    const numbers = values.filter((value) => typeof value === "number");
    if (numbers.length < values.length) return [categorical(one, values)];
    const [min, max] = [Math.min(...numbers), Math.max(...numbers)];
    const least = LOG_FROM[one.isMetric ? "metric" : "setting"];
    const isLog = min > 0 && (one.isLog ?? max / min >= least);
    const different = [...new Set(numbers)].sort((a, b) => a - b);
    const isRepeated = different.length < numbers.length;
    const few = !one.isMetric && isRepeated && different.length <= FEW ? different : null;
    return [{ ...one, categories: null, few, isLog, min, max }];
  });
}

/** Returns where a value lies between 0 and 1; null without one. A single value lies in the middle. */
export function shareOf(variable: Variable, value: PlotValue | undefined): number | null {
  if (value === undefined || !isValue(value)) return null;
  const { categories, min, max, isLog } = variable;
  if (categories) {
    const place = categories.indexOf(String(value));
    if (place < 0) return null;
    return categories.length === 1 ? 0.5 : place / (categories.length - 1);
  }
  if (typeof value !== "number") return null;
  if (max === min) return 0.5;
  return isLog ? Math.log(value / min) / Math.log(max / min) : (value - min) / (max - min);
}

/** Returns the number at a share of a variable of numbers. */
export function numberAt({ min, max, isLog }: Variable, share: number): number {
  return isLog ? min * (max / min) ** share : min + share * (max - min);
}

/** Says whether it is one: a number that is not finite is none. */
export function isValue(value: PlotValue): value is number | string {
  return typeof value === "number" ? Number.isFinite(value) : typeof value === "string";
}

function categorical(named: Named, values: readonly (number | string)[]): Variable {
  const categories = [...new Set(values.map(String))].sort(natural);
  return { ...named, categories, few: null, isLog: false, min: 0, max: categories.length - 1 };
}
