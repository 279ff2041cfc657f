// @vitest-environment node
import { expect, test } from "vitest";
import { Attempts } from "./attempts";
import { Columns } from "./columns";
import { catchUp, finer, stepsWithin } from "./detail";
import { Line } from "./line";
import { curve } from "./testing";

function line(values: readonly number[], first = 0): Line {
  const columns = Columns.of(curve("loss", values, { first }), 0);
  const place = new Attempts().place("job_a", "step", 0);
  return new Line({
    ...{ jobId: "job_a", job: "a", name: "a", key: "loss", part: null },
    ...{ colour: { slot: 1, dash: [] }, columns, place },
  });
}

const hundred = line(Array.from({ length: 101 }, (_, i) => i));

test("the steps of a zoom have a little on both sides, and no end where it reaches the newest", () => {
  expect(stepsWithin([hundred], { min: 20, max: 40 })).toEqual({ from: 18, to: 42 });
  expect(stepsWithin([hundred], { min: 0, max: 100 })?.to).toBe(Infinity);
  expect(stepsWithin([hundred, line([1, 2], 10)], { min: 20, max: 40 })?.to).toBe(Infinity);
  expect(stepsWithin([], { min: 0, max: 1 })).toBeNull();
});

test("finer rows that do not hold all that is shown are not taken", () => {
  const detail = { from: 18, to: 42, columns: line([1, 2, 3], 18).columns };
  expect(finer(hundred, detail, { min: 20, max: 40 }).columns).toBe(detail.columns);
  expect(finer(hundred, detail, { min: 20, max: 40 }).whole).toBe(hundred.columns);
  expect(finer(hundred, detail, { min: 10, max: 40 })).toBe(hundred);
  expect(finer(hundred, detail, { min: 20, max: 50 })).toBe(hundred);
});

test("rows that came while the finer ones were read are added to them, once", () => {
  const columns = line([7, 8], 98).columns;
  catchUp(columns, hundred.columns);
  expect([...columns.step.subarray(0, columns.length)]).toEqual([98, 99, 100]);
});
