// @vitest-environment node
import { expect, test } from "vitest";
import type { WireNumber } from "../api/curves";
import { Place, stepsPerEpoch, type Attempt, type XKind } from "./axis";
import { Columns } from "./columns";
import { extentOf, Line } from "./line";
import { measure } from "./range";
import CELLS from "../../../tests/csv_cells.json";
import { csvOf, tableOf, textCell } from "./table";
import { notesOf, tooFewNote } from "./words";

const CURVE = {
  ...{ step: [1], time: [1], attempt: [1], mean: [1] },
  ...{ min: null, max: null, ema: null, nonfinite: null },
};
const PLAIN = { log: false, robust: false };
const iso = (seconds: number): string => new Date(seconds * 1000).toISOString();
const attempt = (number: number, from: number, to: number | null, start_step: number): Attempt => ({
  number,
  started_at: iso(from),
  ended_at: to === null ? null : iso(to),
  start_step,
});

function line(
  values: readonly WireNumber[],
  steps = values.map((_, i) => i + 1),
  id = "a",
  place = new Place("step", []),
): Line {
  const columns = {
    step: steps,
    time: steps.map((step) => 100 + step),
    attempt: steps.map(() => 1),
    mean: values,
    min: null,
    max: null,
    ema: null,
    nonfinite: null,
  };
  return named(`job ${id}`, Columns.of({ points: values.length, columns }, 0), { jobId: id, place });
}

function named(
  job: string,
  columns: Columns,
  { jobId = "a", key = "train/loss", place = new Place("step", []) } = {},
): Line {
  return new Line({ jobId, job, name: job, key, part: null, colour: { slot: 1, dash: [] }, columns, place });
}

test("pauses between attempts are taken out of trained time", () => {
  const attempts = [attempt(1, 1000, 1600, 0), attempt(2, 5000, 5100, 40), attempt(3, 9000, null, 60)];
  const place = new Place("trained", attempts);
  expect([place.at(1, 1010, 1), place.at(50, 5010, 2), place.at(70, 9005, 3)]).toEqual([10, 610, 705]);
  expect(place.seams()).toEqual([
    { attempt: 2, x: 600 },
    { attempt: 3, x: 700 },
  ]);
});

test("seams lie where an attempt went on, in every unit of x", () => {
  const attempts = [attempt(1, 1000, 1600, 0), attempt(2, 5000, null, 1710)];
  const seam = (kind: XKind): readonly number[] => new Place(kind, attempts, 100).seams().map(({ x }) => x);
  expect([seam("step"), seam("epoch"), seam("wall")]).toEqual([[1710], [17.1], [5000]]);
});

test("an attempt that began anew, or one at the same place, makes no seam of its own", () => {
  const attempts = [attempt(1, 0, 1, 0), attempt(2, 2, 3, 0), attempt(3, 4, 5, 80), attempt(4, 6, null, 80)];
  expect(new Place("step", attempts).seams()).toEqual([{ attempt: 4, x: 80 }]);
});

test("an epoch has the steps that progress tells", () => {
  expect(stepsPerEpoch({ epochs: 20, total_steps: 5000 })).toBe(250);
  expect(stepsPerEpoch({ epochs: null, total_steps: 5000 })).toBeNull();
});

test("the range holds what is finite, with 0 as the floor of what is never negative", () => {
  const found = measure([line([0.1, "NaN", 2, "Infinity"])], { min: 0, max: 9 }, PLAIN);
  expect(found).toMatchObject({ lowest: 0.1, highest: 2, nonfinite: 2, rows: 4, above: 0 });
  expect(found.y.min).toBeGreaterThanOrEqual(0);
  expect(found.y.max).toBeGreaterThan(2);
  expect(found.y.max).toBeLessThan(2.5);
});

test("only rows within the range of x count", () => {
  expect(measure([line([1, 2, 3, 99])], { min: 1.5, max: 3 }, PLAIN)).toMatchObject({
    lowest: 2,
    highest: 3,
    rows: 2,
  });
});

test("a few rows leave room for the way to their neighbours", () => {
  for (const robust of [false, true]) {
    const found = measure([line([0, 10, 20, 30])], { min: 1.5, max: 3.5 }, { log: false, robust });
    expect(found).toMatchObject({ lowest: 10, highest: 20, rows: 2 });
    expect([found.y.min <= 0, found.y.max >= 30]).toEqual([true, true]);
  }
});

test("a logarithmic axis counts values at and below 0 and leaves them out", () => {
  const found = measure([line([1, 0, -2, 100])], { min: 0, max: 9 }, { log: true, robust: false });
  expect(found.nonpositive).toBe(2);
  expect(found.y.min).toBeGreaterThan(0.5);
  expect(notesOf(measure([line([1, 0])], { min: 0, max: 9 }, { log: true, robust: false }))).toContain(
    "1 value ≤ 0 is not shown",
  );
});

test("a robust range leaves room for the curve beside a spike, and counts the spike", () => {
  const values = Array.from({ length: 200 }, (_, i) => Math.exp(-i / 60));
  values[120] = 1e9;
  const found = measure([line(values)], { min: 0, max: 300 }, { log: false, robust: true });
  const height = found.y.max - found.y.min;
  expect((Math.exp(0) - Math.exp(-199 / 60)) / height).toBeGreaterThan(0.6);
  expect(found.above).toBe(1);
  expect(notesOf(found)).toContain("1 above");
});

test("a spike that would flatten the rest is left out by itself, and shown when asked for", () => {
  const values = Array.from({ length: 200 }, (_, i) => 2 + Math.sin(i / 20));
  values[120] = 1e6;
  const x = { min: 0, max: 300 };
  const found = measure([line(values)], x, PLAIN);
  expect([found.hasSpike, found.above, found.y.max < 5]).toEqual([true, 1, true]);
  const all = measure([line(values)], x, { ...PLAIN, all: true });
  expect([all.hasSpike, all.above, all.y.max > 1e6]).toEqual([true, 0, true]);
  expect(measure([line(values)], { min: 0, max: 110 }, PLAIN).hasSpike).toBe(false);
});

test("no spike is what is a few times as high, what few points show, and what happens once to a constant", () => {
  const x = { min: 0, max: 300 };
  const falls = Array.from({ length: 200 }, (_, i) => 10 * Math.exp(-i / 20));
  const once = Array.from({ length: 200 }, (_, i) => (i === 100 ? 1 : 0));
  for (const values of [falls, once, [1, 1.1, 1.2, 500]])
    expect(measure([line(values)], x, PLAIN)).toMatchObject({ hasSpike: false, above: 0 });
  const short = Array.from({ length: 20 }, (_, i) => (i === 3 ? 1e9 : i / 10));
  expect(measure([line(short)], x, PLAIN)).toMatchObject({ hasSpike: true, above: 1 });
});

test("a note says which part has too few points to smooth", () => {
  const short = (job: string, key: string): Line => named(job, line([1, 2]).columns, { jobId: job, key });
  const long = named("a", Columns.of({ points: 5000, columns: CURVE }, 0.9), { key: "train/loss" });
  expect(tooFewNote([long])).toBe("");
  expect(tooFewNote([short("a", "val/loss")])).toBe("too few points to smooth");
  const both = [long, short("a", "val/loss"), short("b", "val/loss")];
  expect(tooFewNote(both)).toBe("val: too few points to smooth");
});

test("a robust range is taken for each series: one that is higher is not cut off", () => {
  const low = Array.from({ length: 300 }, (_, i) => Math.sin(i));
  const found = measure(
    [line(low), line([100, 101, 102, 101, 100, 100])],
    { min: 0, max: 400 },
    { log: false, robust: true },
  );
  expect(found).toMatchObject({ above: 0, below: 0 });
  expect(found.y.max).toBeGreaterThan(102);
});

test("a robust range leaves whole what has no value far from the rest", () => {
  const found = measure(
    [line([0.1, 0.5, 0.7, 0.8, 0.85, 0.9])],
    { min: 0, max: 9 },
    { log: false, robust: true },
  );
  expect(found).toMatchObject({ above: 0, below: 0 });
});

test("one value has a range around it, and no value has one, too", () => {
  for (const values of [[5], [0], [-3, -3], ["NaN"], []] as WireNumber[][]) {
    const { y } = measure([line(values)], { min: 0, max: 9 }, PLAIN);
    expect(y.max).toBeGreaterThan(y.min);
  }
});

test("the nearest row is found, and none far beyond an end", () => {
  const found = line([1, 2, 3], [10, 20, 30]);
  expect([9, 14, 16, 31, 200, -90].map((x) => found.nearest(x))).toEqual([0, 0, 1, 2, -1, -1]);
});

test("lines cover the range of all of them", () => {
  const placed = ({ place, columns }: Line): readonly [Place, Columns] => [place, columns];
  expect(extentOf([line([1, 2], [5, 9]), line([1], [70]), line([])].map(placed))).toEqual({
    min: 5,
    max: 70,
  });
  expect(extentOf([line([])].map(placed))).toBeNull();
});

test("a table joins the lines by step and leaves open what a line lacks", () => {
  const { rows, all } = tableOf([line([1, 2, 3], [1, 2, 3]), line([20, 40], [2, 4], "b")], 100);
  expect(all).toBe(4);
  expect(rows.map(({ place, values }) => [place, ...values])).toEqual([
    [1, 1, null],
    [2, 2, 20],
    [3, 3, null],
    [4, null, 40],
  ]);
});

test("a long table keeps the first row and the last", () => {
  const { rows, all } = tableOf([line(Array.from({ length: 1000 }, (_, i) => i))], 200);
  expect([rows.length, all, rows[0]?.place, rows.at(-1)?.place]).toEqual([200, 1000, 1, 1000]);
});

test("a spreadsheet runs no name, as in the CSV of the command line", () => {
  for (const [text, cell] of Object.entries(CELLS))
    expect(textCell(text)).toBe(/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  const evil = named("=1+1", line([-1.5]).columns, { key: "@SUM(1)" });
  expect(csvOf([evil]).split("\r\n")[1]).toBe(
    "a,'=1+1,'@SUM(1),1,1970-01-01T00:01:41.000Z,1,1,-1.5,-1.5,-1.5,-1.5,0",
  );
});

test("a time in CSV is that of its millisecond, not of the one before it", () => {
  const { columns } = line([1]);
  columns.time[0] = 1795791234.7009999; // as near to .701 as the number comes that the service sends
  expect(csvOf([named("a", columns)])).toContain(".701Z");
});

test("CSV quotes names and keeps what is no number", () => {
  const odd = named('say "hi", twice', line([1.5, "NaN"]).columns);
  expect(csvOf([odd]).split("\r\n")).toEqual([
    "job_id,job,key,step,time,attempt,points,mean,min,max,ema,nonfinite",
    'a,"say ""hi"", twice",train/loss,1,1970-01-01T00:01:41.000Z,1,1,1.5,1.5,1.5,1.5,0',
    'a,"say ""hi"", twice",train/loss,2,1970-01-01T00:01:42.000Z,1,1,NaN,NaN,NaN,NaN,1',
    "",
  ]);
});
