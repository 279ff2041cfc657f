import { expect, test } from "vitest";
import { CurveStore } from "./store.svelte";
import { curve, keys, point } from "./testing";

const job = (id: string): Parameters<CurveStore["show"]>[0][number] => ({
  ...{ id, name: id, perEpoch: null, attempts: [] },
});

function open(all: Readonly<Record<string, readonly string[]>>): CurveStore {
  const store = new CurveStore();
  store.show(Object.keys(all).map(job));
  store.takeKeys(keys(all));
  return store;
}

function values(store: CurveStore, key: string): Record<string, number[]> {
  return Object.fromEntries(
    store
      .lines([key], "step")
      .map((line) => [line.jobId, [...line.columns.mean.subarray(0, line.columns.length)]]),
  );
}

test("each key is counted with the jobs that have it, also when a job logs it later", () => {
  const store = open({ job_a: ["loss", "lr"], job_b: ["loss"] });
  expect([...store.keys]).toEqual([
    ["loss", 2],
    ["lr", 1],
  ]);
  expect(store.append(point("loss", 1, 1))).toBe(false);
  expect(store.append(point("lr", 1, 1, 1, "job_b"))).toBe(true);
  expect(store.keys.get("lr")).toBe(2);
});

test("live points follow a curve, and what it has already is not added", () => {
  const store = open({ job_a: ["loss"] });
  store.put("loss", [curve("loss", [4, 3, 2])], 0);
  for (const late of [point("loss", 3, 9), point("loss", 4, 1)]) store.append(late);
  expect(values(store, "loss")).toEqual({ job_a: [4, 3, 2, 1] });
  expect(store.range("step")).toEqual({ min: 1, max: 4 });
  store.append(point("loss", 5, 0));
  expect(values(store, "loss")).toEqual({ job_a: [4, 3, 2, 1, 0] });
  expect(store.range("step")).toEqual({ min: 1, max: 5 });
});

test("curves of a key that was not read take no points", () => {
  const store = open({ job_a: ["loss"] });
  store.append(point("loss", 1, 1));
  expect([store.isLoaded("loss"), store.lines(["loss"], "step")]).toEqual([false, []]);
});

test("curves of jobs and keys that are not shown any more go", () => {
  const store = open({ job_a: ["loss", "lr"], job_b: ["loss"] });
  store.put("loss", [curve("loss", [1]), curve("loss", [2], { job: "job_b" })], 0);
  store.put("lr", [curve("lr", [3])], 0);
  store.show([job("job_b")]);
  store.takeKeys(keys({ job_b: ["loss"] }));
  expect([values(store, "loss"), store.loaded(), store.loaded("job_a")]).toEqual([
    { job_b: [2] },
    ["loss"],
    [],
  ]);
});

test("replaced tails are drawn where that is asked for", () => {
  const store = open({ job_a: ["loss"] });
  store.put("loss", [curve("loss", [1, 2]), curve("loss", [8], { hidden: true })], 0);
  expect(store.lines(["loss"], "step")[0]?.ghosts).toHaveLength(0);
  store.ghost = true;
  expect(store.lines(["loss"], "step")[0]?.ghosts).toHaveLength(1);
});

test("finer rows are shown where they hold all of the zoom, and go on with live points", () => {
  const store = open({ job_a: ["loss"] });
  const all = curve("loss", [1, 2, 3, 4], { points: 40 });
  store.put("loss", [all], 0);
  expect(store.isCoarse("loss")).toBe(true);
  store.putDetail([curve("loss", [2, 2.5, 3], { first: 2 })], { from: 2, to: Infinity });
  const rows = (min: number, max: number): number | undefined =>
    store.lines(["loss"], "step", { min, max })[0]?.columns.length;
  expect([rows(1, 4), rows(2, 4)]).toEqual([4, 3]);
  store.append(point("loss", 5, 9));
  expect(rows(2, 5)).toBe(4);
});

test("listeners hear what is new until they stop", () => {
  const store = open({ job_a: ["loss"] });
  let heard = 0;
  const stop = store.listen(() => (heard += 1));
  store.append(point("loss", 1, 1));
  stop();
  store.append(point("loss", 2, 1));
  expect(heard).toBe(1);
});

test("the newest attempt is that of the curves, and before them that of the job", () => {
  const store = open({ job_a: ["loss"] });
  expect(store.newestAttempt("job_a")).toBe(1);
  store.put("loss", [curve("loss", [1, 2])], 0);
  const attempt = { started_at: "2026-01-01T00:00:00Z", ended_at: null, start_step: 0 };
  store.show([{ ...job("job_a"), attempts: [1, 2].map((number) => ({ ...attempt, number })) }]);
  expect([store.attempts.newest("job_a"), store.newestAttempt("job_a")]).toEqual([2, 1]);
  store.append(point("loss", 3, 1, 2));
  expect(store.newestAttempt("job_a")).toBe(2);
});
