/** How much a metric goes with what was set: by ranks, which an outlier or another scale does not change. */
import { number } from "../text/number";
import type { Better } from "./direction";
import { isValue, type PlotRow, type Variable } from "./rows";

export interface Importance {
  readonly variable: Variable;
  /** Runs that have both values. */
  readonly count: number;
  /** 0 … 1; null where it says nothing. */
  readonly strength: number | null;
  /** Whether the metric grows or falls with the variable; null where it does neither. */
  readonly sign: 1 | -1 | null;
  /** How it is measured, or why it is not. */
  readonly note: string;
}

/** With fewer runs chance makes any rank correlation. */
export const LEAST_RUNS = 8;

/** A range has so many parts at most, of so many runs at least each, in which the metric is looked at. */
const [MOST_PARTS, LEAST_OF_PART] = [5, 4];
const RATIO = "correlation ratio";
/** By so much the parts must say more than the order: it has a sign. */
const MORE = 0.2;

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
    const ratio = beyondChance(names, ys);
    if (ratio === null) return none("does not vary");
    return { variable, count, strength: ratio, sign: null, note: RATIO };
  }
  const xs = pairs.map(([x]) => Number(x));
  const found = spearman(xs, ys);
  if (found === null) return none("does not vary");
  const parts = partsOf(xs);
  const ratio = beyondChance(parts, ys) ?? 0;
  if (ratio > Math.abs(found) + MORE) {
    const at = target.better && bestPart(xs, parts, ys, target.better);
    return {
      variable,
      count,
      strength: ratio,
      sign: null,
      note: at === null ? RATIO : `best ${at} (${RATIO})`,
    };
  }
  return { variable, count, strength: Math.abs(found), sign: found < 0 ? -1 : 1, note: "Spearman" };
}

/** Returns the correlation ratio without the share that groups have by chance: so many groups of so few runs explain some. */
function beyondChance(groups: readonly string[], ys: readonly number[]): number | null {
  const ratio = correlationRatio(groups, ys);
  const [runs, parts] = [ys.length, new Set(groups).size];
  return ratio === null ? null : Math.sqrt(Math.max(0, 1 - ((1 - ratio ** 2) * (runs - 1)) / (runs - parts)));
}

/** Returns in which part of their range numbers lie: each of few different ones is a part, else parts have as many runs. */
function partsOf(xs: readonly number[]): readonly string[] {
  if (new Set(xs).size <= xs.length / 3) return xs.map(String);
  const parts = Math.min(MOST_PARTS, Math.floor(xs.length / LEAST_OF_PART));
  return ranksOf(xs).map((rank) => String(Math.floor(((rank - 0.5) / xs.length) * parts)));
}

/** Says which numbers have the best mean rank: `at 0.003`, or `at 0.002–0.004`. */
function bestPart(
  xs: readonly number[],
  parts: readonly string[],
  ys: readonly number[],
  better: Better,
): string {
  const ranks = ranksOf(ys);
  const means = [...new Set(parts)].map((part) => {
    const own = parts.flatMap((other, i) => (other === part ? [i] : []));
    const mean = own.reduce((sum, i) => sum + (ranks[i] ?? 0), 0) / own.length;
    return { own, goodness: better === "max" ? mean : -mean };
  });
  const best = means.reduce((one, other) => (other.goodness > one.goodness ? other : one));
  const values = best.own.map((i) => xs[i] ?? 0);
  const [least, most] = [number(Math.min(...values)), number(Math.max(...values))];
  return least === most ? `at ${least}` : `at ${least}–${most}`;
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
