/** Rows and variables for tests of plots. */
import { variablesOf, type Named, type PlotRow, type PlotValue, type Variable } from "./rows";

export function rowsOf(...values: readonly Readonly<Record<string, PlotValue>>[]): readonly PlotRow[] {
  return values.map((one, i) => ({ id: `job_${i}`, name: `run ${i}`, values: one }));
}

export function named(key: string, changes: Partial<Named> = {}): Named {
  return { key, title: key, isMetric: false, better: null, ...changes };
}

export function variable(rows: readonly PlotRow[], key: string, changes: Partial<Named> = {}): Variable {
  const [found] = variablesOf(rows, [named(key, changes)]);
  if (!found) throw new Error(`no value of ${key}`);
  return found;
}
