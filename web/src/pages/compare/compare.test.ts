// @vitest-environment node
import { expect, test } from "vitest";
import type { JobView } from "../../api/wire";
import { ranFor, tableKeys } from "./compared";
import { specRows } from "./diff";

test("specs are laid beside one another by path", () => {
  const rows = specRows([
    { trainer: "segmentation", config: { lr: 0.1, augment: ["flip"] }, labels: {} },
    { trainer: "segmentation", config: { lr: 0.2, augment: ["flip"] }, labels: { team: "a" } },
  ]);
  expect(rows.filter((row) => !row.isEqual)).toEqual([
    { path: "config.lr", values: ["0.1", "0.2"], isEqual: false },
    { path: "labels.team", values: [null, '"a"'], isEqual: false },
  ]);
  expect(rows.filter((row) => row.isEqual).map((row) => row.path)).toEqual(["config.augment", "trainer"]);
});

test("a null and a missing key differ", () => {
  expect(specRows([{ a: null }, {}])).toEqual([{ path: "a", values: ["null", null], isEqual: false }]);
});

const job = (changes: Partial<JobView>): JobView => changes as JobView;

test("the table shows keys of most jobs, evaluation first", () => {
  const jobs = [
    job({ metrics: { "train/loss": 1, "val/iou": 1, lr: 1 } }),
    job({ metrics: { "train/loss": 1, "val/iou": 1, odd: 2 } }),
  ];
  expect(tableKeys(jobs, 3)).toEqual(["val/iou", "train/loss", "lr"]);
});

test("a job ran from its start to its end, or to now", () => {
  const started_at = "2026-01-01T00:00:00Z";
  expect(ranFor(job({ started_at, finished_at: "2026-01-01T00:01:00Z" }))).toBe(60);
  expect(ranFor(job({ started_at }), Date.parse("2026-01-01T00:00:09Z"))).toBe(9);
  expect(ranFor(job({ started_at: null }))).toBeNull();
});
