/** How much a metric goes with what was set: by ranks, which an outlier or another scale does not change. */
import { isValue, type PlotRow, type Variable } from "./rows";

export interface Importance {
  readonly variable: Variable;
  /** Runs that have both values. */
  readonly count: number;
  /** 0 … 1; null where it says nothing. */
  readonly strength: number | null;
  /** Whether the metric grows or falls with the variable; null where it has no order. */
  readonly sign: 1 | -1 | null;
  /** How it is measured, or why it is not. */
  readonly note: string;
}

/** With fewer runs chance makes any rank correlation. */
export const LEAST_RUNS = 8;

/** Returns how much the target goes with each variable, the strongest first. */
export function importanceOf(
  rows: readonly PlotRow[],
  variables: readonly Variable[],
  target: Variable,
): readonly Importance[] {
  return variables
    .map((variable) => one(rows, variable, target))
    .sort((a, b) => (b.strength ?? -1) - (a.strength ?? -1));
}

/** Returns Spearman's rank correlation; null where one of them does not vary. Equal values share their mean rank. */
export function spearman(xs: readonly number[], ys: readonly number[]): number | null {
  return pearson(ranksOf(xs), ranksOf(ys));
}

/** Returns the ranks from 1; equal values share their mean rank. */
export function ranksOf(values: readonly number[]): readonly number[] {
  const order = values.map((_, i) => i).sort((a, b) => (values[a] ?? 0) - (values[b] ?? 0));
  const ranks = new Array<number>(values.length).fill(0);
  for (let from = 0; from < order.length;) {
    let to = from + 1;
    while (to < order.length && values[order[to] ?? 0] === values[order[from] ?? 0]) to += 1;
    for (let i = from; i < to; i++) ranks[order[i] ?? 0] = (from + 1 + to) / 2;
    from = to;
  }
  return ranks;
}

/** Returns the correlation ratio of ranks: the root of the share of their variance that lies between the categories. */
export function correlationRatio(categories: readonly string[], ys: readonly number[]): number | null {
  const ranks = ranksOf(ys);
  const mean = (ranks.length + 1) / 2;
  const groups = new Map<string, { sum: number; count: number }>();
  for (const [i, rank] of ranks.entries()) {
    const group = groups.get(categories[i] ?? "") ?? { sum: 0, count: 0 };
    groups.set(categories[i] ?? "", { sum: group.sum + rank, count: group.count + 1 });
  }
  const all = ranks.reduce((sum, rank) => sum + (rank - mean) ** 2, 0);
  if (all === 0 || groups.size < 2) return null;
  const between = [...groups.values()].reduce(
    (sum, group) => sum + group.count * (group.sum / group.count - mean) ** 2,
    0,
  );
  return Math.sqrt(between / all);
}

function one(rows: readonly PlotRow[], variable: Variable, target: Variable): Importance {
  const pairs = rows.flatMap((row): readonly (readonly [number | string, number])[] => {
    const [x, y] = [row.values[variable.key] ?? null, row.values[target.key] ?? null];
    return isValue(x) && typeof y === "number" && isValue(y) ? [[x, y]] : [];
  });
  const count = pairs.length;
  const none = (note: string): Importance => ({ variable, count, strength: null, sign: null, note });
  if (count < LEAST_RUNS) return none("too few runs");
  const ys = pairs.map(([, y]) => y);
  if (variable.categories) {
    const names = pairs.map(([x]) => String(x));
    // Categories with a run or two explain anything.
    if (new Set(names).size > count / 3) return none("too many different values");
    const ratio = correlationRatio(names, ys);
    if (ratio === null) return none("does not vary");
    return { variable, count, strength: ratio, sign: null, note: "correlation ratio" };
  }
  const found = spearman(
    pairs.map(([x]) => Number(x)),
    ys,
  );
  if (found === null) return none("does not vary");
  return { variable, count, strength: Math.abs(found), sign: found < 0 ? -1 : 1, note: "Spearman" };
}

function pearson(xs: readonly number[], ys: readonly number[]): number | null {
  const mean = (values: readonly number[]): number =>
    values.reduce((sum, value) => sum + value, 0) / values.length;
  const [meanX, meanY] = [mean(xs), mean(ys)];
  let [both, squaresX, squaresY] = [0, 0, 0];
  for (const [i, x] of xs.entries()) {
    const [dx, dy] = [x - meanX, (ys[i] ?? 0) - meanY];
    both += dx * dy;
    squaresX += dx * dx;
    squaresY += dy * dy;
  }
  if (squaresX === 0 || squaresY === 0) return null;
  return Math.max(-1, Math.min(1, both / Math.sqrt(squaresX * squaresY)));
}
