// @vitest-environment node
import { expect, test } from "vitest";
import type { JobSummary, JobView } from "../api/wire";
import type { Items } from "./events";
import { grown, merged, newest } from "./reported";

const view = (changes: Partial<JobView>): JobView =>
  ({ id: "job_a", version: 1, position: 10, metrics: {}, ...changes }) as JobView;

const summary = (changes: Partial<JobSummary>): JobSummary => view(changes as Partial<JobView>);

const items = (position: number, values: Record<string, readonly (number | string)[]>): Items => ({
  job_id: "job_a",
  position,
  logs: [],
  events: [],
  metrics: Object.fromEntries(
    Object.entries(values).map(([key, value]) => [key, { step: [], value, time: [], attempt: [] }]),
  ),
});

test("a summary that the stream tells leaves the metrics and fields that it has not", () => {
  const known = view({ name: "old", card: { parameters: 5 }, metrics: { "train/loss": 2, "val/iou": 0.5 } });
  const reported = summary({ position: 11, name: "new", metrics: { "train/loss": 1 } });
  expect(merged(known, reported)).toMatchObject({
    name: "new",
    card: { parameters: 5 },
    metrics: { "train/loss": 1, "val/iou": 0.5 },
  });
});

test("what is older changes nothing", () => {
  const known = view({ version: 3, position: 20, name: "known" });
  for (const old of [
    { version: 2, position: 30 },
    { version: 3, position: 19 },
  ]) {
    expect(merged(known, summary({ ...old, name: "old" }))).toBe(known);
    expect(newest(known, view({ ...old, name: "old" }))).toBe(known);
  }
});

test("of equals, what came later counts", () => {
  const known = view({ name: "first" });
  expect(merged(known, summary({ name: "later" })).name).toBe("later");
  expect(newest(known, view({ name: "later" })).name).toBe("later");
  expect(newest(null, known)).toBe(known);
});

test("points that a job stores are its newest values", () => {
  const known = view({ metrics: { "train/loss": 2, "val/iou": 0.5 } });
  const now = grown(known, items(12, { "val/iou": [0.6, "NaN"], lr: [0.1] }));
  expect(now).toMatchObject({ position: 12, metrics: { "train/loss": 2, "val/iou": "NaN", lr: 0.1 } });
  expect(grown(now, items(12, { lr: [9] }))).toBe(now);
});
