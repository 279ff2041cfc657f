// @vitest-environment node
import { expect, test } from "vitest";
import type { Curve, WireNumber } from "../api/curves";
import { Columns, MOST_ROWS } from "./columns";
import { Ema } from "./ema";

function curve(
  values: readonly WireNumber[],
  changes: Partial<Curve["columns"]> = {},
  points = values.length,
): Pick<Curve, "points" | "columns"> {
  const step = values.map((_, i) => i + 1);
  const columns = {
    step,
    time: step,
    attempt: step.map(() => 1),
    mean: values,
    min: null,
    max: null,
    ema: null,
    nonfinite: null,
  };
  return { points, columns: { ...columns, ...changes } };
}

/** The service's rule, written out: debiased, over all finite values. */
function averages(values: readonly number[], weight: number): number[] {
  return values.map((_, end) => {
    const finite = values.slice(0, end + 1).filter(Number.isFinite);
    const sum = finite.reduce((sum, value) => sum * weight + value * (1 - weight), 0);
    return sum / (1 - weight ** finite.length);
  });
}

test("an average is debiased and skips what is not finite", () => {
  const values = [3, 1, NaN, 4, Infinity, 1, -Infinity, 5];
  const ema = new Ema(0.9);
  const found = values.map((value) => ema.next(value));
  for (const [i, expected] of averages(values, 0.9).entries()) expect(found[i]).toBeCloseTo(expected, 12);
  expect(found[0]).toBeCloseTo(3, 12);
});

test("an average before the first finite value is nothing", () => {
  expect(new Ema(0.5).next(NaN)).toBeNaN();
});

test("live points go on with the service's average", () => {
  const values = Array.from({ length: 40 }, (_, i) => (i === 7 ? NaN : Math.sin(i)));
  const wanted = averages(values, 0.95);
  const sent = values.slice(0, 25).map((value): WireNumber => (Number.isNaN(value) ? "NaN" : value));
  const columns = Columns.of(curve(sent, { ema: wanted.slice(0, 25) }), 0.95);
  for (let i = 25; i < 40; i++) columns.append(i + 1, i + 1, 1, values[i] ?? NaN);
  expect(columns.length).toBe(40);
  for (const [i, value] of values.entries())
    if (Number.isFinite(value)) expect(columns.ema[i]).toBeCloseTo(wanted[i] ?? NaN, 9);
    else expect(columns.ema[i]).toBeNaN();
});

test("live points go on with the average of buckets", () => {
  const values = Array.from({ length: 30 }, (_, i) => Math.cos(i));
  const wanted = averages(values, 0.9);
  const last = [9, 19, 29];
  const sent = curve(
    last.map(() => 0.5),
    { step: [10, 20, 30], min: [0, 0, 0], max: [1, 1, 1], ema: last.map((i) => wanted[i] ?? null) },
    30,
  );
  const columns = Columns.of(sent, 0.9);
  columns.append(31, 31, 1, 2);
  expect(columns.ema[3]).toBeCloseTo(averages([...values, 2], 0.9)[30] ?? NaN, 12);
  expect(columns.points).toBe(31);
});

test("live rows become as coarse as those before them", () => {
  const sent = curve([0, 0, 0], { step: [10, 20, 30], min: [0, 0, 0], max: [1, 1, 1] }, 30);
  const columns = Columns.of(sent, 0);
  for (let step = 31; step <= 45; step++) columns.append(step, step, 1, step);
  expect([...columns.weight.slice(0, columns.length)]).toEqual([10, 10, 10, 10, 5]);
  expect([...columns.step.slice(3, 5), ...columns.mean.slice(3, 5), ...columns.max.slice(3, 5)]).toEqual([
    40, 45, 35.5, 43, 40, 45,
  ]);
  expect(columns.newest).toBe(45);
});

test("a point that is there already changes nothing", () => {
  const columns = Columns.of(curve([1, 2, 3]), 0);
  columns.append(3, 9, 1, 7);
  columns.append(2, 9, 1, 7);
  expect([...columns.mean.slice(0, columns.length)]).toEqual([1, 2, 3]);
});

test("points of a later attempt replace those of the steps that it repeats", () => {
  const wanted = averages([1, 2, 3, 30], 0.5);
  const columns = Columns.of(curve([1, 2, 3, 4, 5], { ema: averages([1, 2, 3, 4, 5], 0.5) }), 0.5);
  columns.append(4, 10, 2, 30);
  columns.append(5, 11, 1, 99);
  expect([...columns.step.slice(0, columns.length)]).toEqual([1, 2, 3, 4]);
  expect([...columns.attempt.slice(0, columns.length)]).toEqual([1, 1, 1, 2]);
  expect(columns.ema[3]).toBeCloseTo(wanted[3] ?? NaN, 12);
  expect(columns.points).toBe(4);
});

test("values that are no numbers survive and are counted", () => {
  const columns = Columns.of(curve([1, "NaN", "Infinity", null]), 0);
  expect([...columns.mean.slice(0, 4)]).toEqual([1, NaN, Infinity, NaN]);
  expect([...columns.nonfinite.slice(0, 4)]).toEqual([0, 1, 1, 1]);
});

test("rows stay bounded and keep extremes, sums, order and the newest point", () => {
  const columns = new Columns(0);
  const many = 20 * MOST_ROWS;
  let most = 0;
  for (let i = 1; i <= many; i++) {
    columns.append(i, i, i > many / 2 ? 2 : 1, i === 500 ? 1e9 : i === 700 ? NaN : i % 7);
    most = Math.max(most, columns.length);
  }
  const rows = columns.length;
  const sum = (values: Uint32Array): number => values.slice(0, rows).reduce((all, value) => all + value, 0);
  expect(most).toBeLessThanOrEqual(MOST_ROWS);
  expect(rows).toBeGreaterThan(MOST_ROWS / 4);
  expect(columns.points).toBe(many);
  expect(sum(columns.weight)).toBe(many);
  expect(sum(columns.nonfinite)).toBe(1);
  expect(Math.max(...columns.max.slice(0, rows))).toBe(1e9);
  expect(columns.step[rows - 1]).toBe(many);
  expect([...columns.step.slice(0, rows)].every((step, i, all) => i === 0 || step > (all[i - 1] ?? 0))).toBe(
    true,
  );
  expect(Math.max(...columns.weight.slice(0, rows))).toBeLessThan(80);
});

test("rows of different attempts are never joined", () => {
  const columns = new Columns(0);
  for (let i = 1; i <= 3 * MOST_ROWS; i++) columns.append(i, i, i > 1000 ? 2 : 1, 1);
  const ends = [...columns.step.slice(0, columns.length)].filter((_, row) => columns.attempt[row] === 1);
  expect(ends.at(-1)).toBe(1000);
});

test("where no point of a row is finite, there is no average: the line breaks", () => {
  const all = curve([3, "NaN", "NaN", 1], { ema: [3, 3, 3, 2] });
  const columns = Columns.of(all, 0.5);
  columns.append(5, 5, 1, NaN);
  columns.append(6, 6, 1, 2);
  expect([...columns.ema.subarray(0, 4)]).toEqual([3, NaN, NaN, 2]);
  expect(columns.ema[4]).toBeNaN();
  expect(columns.ema[5]).toBeCloseTo(2);
});
