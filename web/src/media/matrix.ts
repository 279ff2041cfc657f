/** What a confusion matrix says, and which samples belong to its cells. */
import type { MediaView } from "../api/wire";
import { number } from "../text/number";
import type { Matrix } from "./data";

const MOST_DIGITS = 1e12;

export interface Place {
  /** The true class. */
  readonly truth: number;
  readonly taken: number;
}

export interface Pair extends Place {
  readonly count: number;
  /** Of the samples of the true class. */
  readonly share: number;
}

/** Returns the sum of each row: the samples of each true class. */
export function rowSums({ matrix }: Matrix): readonly number[] {
  return matrix.map((row) => row.reduce((sum, count) => sum + count, 0));
}

export function pairAt(matrix: Matrix, { truth, taken }: Place): Pair {
  const row = matrix.matrix[truth] ?? [];
  const sum = row.reduce((all, count) => all + count, 0);
  const count = row[taken] ?? 0;
  return { truth, taken, count, share: sum > 0 ? count / sum : 0 };
}

/** What a class comes to; null where there is nothing to divide by. */
export interface ClassFigures {
  readonly samples: number;
  /** Of the samples of the class, those taken for it. */
  readonly recall: number | null;
  /** Of those taken for the class, those that are of it. */
  readonly precision: number | null;
  readonly f1: number | null;
}

/** Returns the figures of each class. */
export function classFigures(matrix: Matrix): readonly ClassFigures[] {
  const taken = matrix.matrix.map(() => 0);
  for (const row of matrix.matrix)
    for (const [index, count] of row.entries()) taken[index] = (taken[index] ?? 0) + count;
  return rowSums(matrix).map((samples, index) => {
    const right = matrix.matrix[index]?.[index] ?? 0;
    const of = taken[index] ?? 0;
    return {
      samples,
      recall: samples > 0 ? right / samples : null,
      precision: of > 0 ? right / of : null,
      f1: samples + of > 0 ? (2 * right) / (samples + of) : null,
    };
  });
}

/** Returns the pairs that occur, those of wrong answers first, and of each the most frequent first. */
export function pairs(matrix: Matrix): readonly Pair[] {
  const found: Pair[] = [];
  const sums = rowSums(matrix);
  for (const [truth, row] of matrix.matrix.entries())
    for (const [taken, count] of row.entries())
      if (count > 0) found.push({ truth, taken, count, share: count / (sums[truth] || 1) });
  return found.sort(
    (a, b) =>
      Number(a.truth === a.taken) - Number(b.truth === b.taken) || b.count - a.count || a.truth - b.truth,
  );
}

/** Returns a count as people read it; one that no sample has counted stays short. */
export function countText(count: number): string {
  return count < MOST_DIGITS ? count.toLocaleString("en-US") : number(count);
}

/** Returns the items whose captions say that they belong to the cell: "3 instead of 5 (0.93)". */
export function samplesOf(
  items: readonly MediaView[],
  { classes }: Matrix,
  { truth, taken }: Place,
): MediaView[] {
  const wanted = `${classes[taken] ?? ""} instead of ${classes[truth] ?? ""}`;
  return items.filter(({ caption }) => caption !== null && caption.replace(/ \([0-9.]+%?\)$/, "") === wanted);
}
