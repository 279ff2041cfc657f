// @vitest-environment node
import { expect, test } from "vitest";
import { Attempts, type CurveJob } from "./attempts";

const first = {
  number: 1,
  started_at: "1970-01-01T00:00:10Z",
  ended_at: "1970-01-01T00:00:20Z",
  start_step: 0,
};
const second = { number: 2, started_at: "1970-01-01T00:01:00Z", ended_at: null, start_step: 50 };
const job = (...attempts: CurveJob["attempts"]): CurveJob => ({
  ...{ id: "job_a", name: "a", perEpoch: 10, attempts },
});

test("while no attempt is known, there is the first, and times begin with the first point", () => {
  const attempts = new Attempts();
  attempts.take([job()]);
  expect([attempts.newest("job_a"), attempts.hasSeams()]).toEqual([1, false]);
  expect(attempts.place("job_a", "trained", 30).at(1, 35, 1)).toBe(5);
});

test("newer attempts change where points lie", () => {
  const attempts = new Attempts();
  attempts.take([job(first)]);
  const place = attempts.place("job_a", "trained", 0);
  expect(attempts.place("job_a", "trained", 0)).toBe(place);
  attempts.take([job(first, second)]);
  expect([attempts.newest("job_a"), attempts.hasSeams()]).toEqual([2, true]);
  expect(attempts.place("job_a", "trained", 0).at(51, 61, 2)).toBe(11);
  expect(attempts.place("job_a", "epoch", 0).seams()).toEqual([{ attempt: 2, x: 5 }]);
});

test("a job that is not shown has no seams", () => {
  const attempts = new Attempts();
  attempts.take([job(first, second)]);
  attempts.take([]);
  expect([attempts.hasSeams(), attempts.place("job_a", "step", 0).seams()]).toEqual([false, []]);
});
