import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Curve } from "../api/curves";
import type { LiveEvent } from "../live/events";
import { JobStore } from "../live/job.svelte";
import type { CurveJob } from "./attempts";
import { CurveLoader, type Follow } from "./loader";
import { CurveStore } from "./store.svelte";
import { curve, point } from "./testing";

interface Asked {
  readonly path: string;
  readonly query: URLSearchParams;
  readonly signal: AbortSignal | null;
}

const asked: Asked[] = [];
let attempts = 1;
let answers = true;
let series: readonly Curve[] = [];
let opened: JobStore;
let curves: CurveLoader;
let follows = 0;
let followed: Readonly<Record<string, number>> = {};
let tell: (event: LiveEvent) => void;

/** A service whose jobs have one metric and as many attempts as the test says. */
function answer(target: string): Promise<Response> {
  if (!answers) return new Promise(() => undefined);
  const numbers = Array.from({ length: attempts }, (_, i) => i + 1);
  const data = numbers.map((number) => ({ number, start_step: 10 * (number - 1), devices: [] }));
  const ids = new URL(target).searchParams.getAll("job");
  const jobs = ids.map((job_id) => ({ job_id, position: 1, keys: [{ key: "train/loss" }] }));
  const body = target.includes("attempts")
    ? { data }
    : { jobs, series: target.includes("key=") ? ofJobs(ids) : [], max_points: 1500 };
  return Promise.resolve(new Response(JSON.stringify(body)));
}

function ofJobs(ids: readonly string[]): readonly Curve[] {
  return series.filter(({ job_id }) => ids.includes(job_id));
}

function askedFor(part: string): readonly Asked[] {
  return asked.filter(({ path }) => path.includes(part));
}

beforeEach(() => {
  vi.useFakeTimers();
  [asked.length, attempts, answers, series, follows] = [0, 1, true, [], 0];
  vi.stubGlobal("fetch", (target: string, init: RequestInit) => {
    const { pathname: path, searchParams: query } = new URL(target);
    asked.push({ path, query, signal: init.signal ?? null });
    return answer(target);
  });
  opened = new JobStore("job_a");
  const follow: Follow = ({ jobs = {} }, listener) => {
    followed = jobs;
    tell = listener;
    follows += 1;
    return () => void (follows -= 1);
  };
  curves = new CurveLoader(new CurveStore(), follow, readAttempts);
});

afterEach(() => {
  curves.close();
  opened.close();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function job(): CurveJob {
  return { id: "job_a", name: "a", perEpoch: null, attempts: opened.attempts };
}

/** Does what the page does: the attempts are the open job's, which are read once for all. */
async function readAttempts(): Promise<void> {
  await opened.readAttempts();
  await curves.open([job()]);
}

function points(step: number, attempt: number, id = "job_a"): LiveEvent {
  return { kind: "items", items: point("train/loss", step, 1, attempt, id) };
}

/** Returns the queries for curves themselves, which name their keys. */
function curvesAskedFor(): readonly URLSearchParams[] {
  return asked.map(({ query }) => query).filter((query) => query.has("key"));
}

function steps(): readonly number[] {
  const columns = curves.store.lines(["train/loss"], "step")[0]?.columns;
  return [...(columns?.step.subarray(0, columns.length) ?? [])];
}

test("a new attempt is read while its points come without a pause", async () => {
  await readAttempts();
  curves.want("train/loss");
  await vi.advanceTimersByTimeAsync(0);
  expect([askedFor("attempts").length, curves.store.attempts.hasSeams()]).toEqual([1, false]);
  attempts = 2;
  for (let step = 11; step < 21; step++) {
    tell(points(step, 2));
    await vi.advanceTimersByTimeAsync(250);
  }
  expect([askedFor("attempts").length, curves.store.attempts.hasSeams()]).toEqual([2, true]);
});

test("a service that answers slowly is waited for, however often the page hears that it missed something", async () => {
  await readAttempts();
  answers = false;
  for (let i = 0; i < 4; i++) {
    await vi.advanceTimersByTimeAsync(5000);
    tell({ kind: "changed", topic: "jobs" });
  }
  const again = askedFor("metrics").slice(1);
  expect(again.map(({ signal }) => signal?.aborted)).toEqual([false]);
});

test("a curve is read once, when a chart of it can be seen, however many there are and however often", async () => {
  await readAttempts();
  await vi.advanceTimersByTimeAsync(100);
  expect([askedFor("metrics").length, curvesAskedFor().length]).toEqual([1, 0]);
  const leave = curves.want("train/loss");
  curves.want("train/loss");
  curves.want("unknown");
  await vi.advanceTimersByTimeAsync(100);
  leave();
  curves.want("train/loss");
  await curves.open([job()]);
  await vi.advanceTimersByTimeAsync(100);
  expect(curvesAskedFor().map((query) => query.getAll("key"))).toEqual([["train/loss"]]);
});

test("points that come while their curve is read follow it", async () => {
  series = [curve("train/loss", [3, 2, 1])];
  await readAttempts();
  curves.want("train/loss");
  vi.advanceTimersByTime(0);
  for (const step of [3, 4]) tell(points(step, 1));
  expect(steps()).toEqual([]);
  await vi.advanceTimersByTimeAsync(0);
  expect(steps()).toEqual([1, 2, 3, 4]);
});

test("curves are read again when points of a newer attempt come, though the job's page knows the attempt", async () => {
  series = [curve("train/loss", [3, 2, 1])];
  attempts = 2;
  await readAttempts();
  curves.want("train/loss");
  await vi.advanceTimersByTimeAsync(0);
  tell(points(2, 2));
  await vi.advanceTimersByTimeAsync(5000);
  expect(curvesAskedFor()).toHaveLength(2);
});

test("another smoothing is read anew, and the answer to the one before is not taken", async () => {
  await readAttempts();
  curves.want("train/loss");
  answers = false;
  vi.advanceTimersByTime(0);
  answers = true;
  curves.configure(0.9, true);
  await vi.advanceTimersByTimeAsync(10);
  const signals = asked.filter(({ query }) => query.has("key")).map(({ signal }) => signal?.aborted);
  expect(signals).toEqual([true, false]);
  const [, second] = curvesAskedFor();
  expect([second?.get("smooth"), second?.get("hidden")]).toEqual(["0.9", "true"]);
});

test("a curve whose points have doubled is read once more, as the service smooths it more then", async () => {
  series = [curve("train/loss", [1, 2, 3], { points: 100 })];
  await readAttempts();
  curves.configure(0.6, false);
  curves.want("train/loss");
  await vi.advanceTimersByTimeAsync(10);
  const before = curvesAskedFor().length;
  series = [curve("train/loss", [1, 2, 3], { points: 130 })];
  for (let step = 101; step < 131; step++) {
    tell(points(step, 1));
    await vi.advanceTimersByTimeAsync(100);
  }
  const after = curvesAskedFor().slice(before);
  expect(after.map((query) => query.get("smooth_points"))).toEqual(["1000"]);
});

test("curves whose points have doubled together are read one after the other, without another point", async () => {
  const ids = ["job_a", "job_b"];
  const answered = (points: number): readonly Curve[] =>
    ids.map((id) => curve("train/loss", [1, 2, 3], { job: id, points }));
  series = answered(100);
  await curves.open(ids.map((id) => ({ ...job(), id })));
  curves.configure(0.6, false);
  curves.want("train/loss");
  await vi.advanceTimersByTimeAsync(10);
  const before = curvesAskedFor().length;
  series = answered(130);
  for (let step = 101; step < 131; step++) for (const id of ids) tell(points(step, 1, id));
  await vi.advanceTimersByTimeAsync(2_000);
  expect(
    curvesAskedFor()
      .slice(before)
      .map((query) => query.getAll("job")),
  ).toEqual([["job_a"], ["job_b"]]);
});

test("a pause hears nothing, and after it all is read again", async () => {
  series = [curve("train/loss", [1])];
  await readAttempts();
  curves.want("train/loss");
  await vi.advanceTimersByTimeAsync(0);
  curves.pause(true);
  expect(follows).toBe(0);
  series = [curve("train/loss", [1, 2])];
  curves.pause(false);
  await vi.advanceTimersByTimeAsync(10);
  expect([follows, steps()]).toEqual([1, [1, 2]]);
});

test("of many jobs each curve comes with fewer points, so that a chart has no more than of ten", async () => {
  const many = (count: number): CurveJob[] =>
    Array.from({ length: count }, (_, i) => ({ ...job(), id: i === 0 ? "job_a" : `job_${i}` }));
  curves.want("train/loss");
  for (const count of [10, 20, 50]) {
    await curves.open(many(count));
    await vi.advanceTimersByTimeAsync(10);
  }
  expect(curvesAskedFor().map((query) => query.get("max_points"))).toEqual(["1500", "750", "300"]);
});

test("a zoom reads finer rows of what is shown, once it has settled", async () => {
  series = [curve("train/loss", [1, 2, 3, 4, 5, 6, 7, 8], { points: 8000 })];
  await readAttempts();
  curves.want("train/loss");
  await vi.advanceTimersByTimeAsync(0);
  for (const min of [2, 2.5, 3]) {
    curves.zoom.show("step", { min, max: 5 });
    await vi.advanceTimersByTimeAsync(10);
  }
  await vi.advanceTimersByTimeAsync(200);
  const finer = curvesAskedFor().filter((query) => query.has("from_step"));
  expect(finer.map((query) => [query.get("from_step"), query.get("to_step")])).toEqual([["1", "7"]]);
  curves.zoom.show("step", null);
  await vi.advanceTimersByTimeAsync(500);
  expect(curvesAskedFor()).toHaveLength(2);
});

test("a failure is shown, and a success takes it back", async () => {
  vi.stubGlobal("fetch", () => Promise.reject(new Error("down")));
  await curves.open([job()]);
  expect([curves.store.failure?.code, curves.store.isReady]).toEqual(["unreachable", false]);
  vi.stubGlobal("fetch", answer);
  await curves.open([]);
  await curves.open([job()]);
  expect([curves.store.failure, curves.store.isReady]).toEqual([null, true]);
});

test("a job that comes beside others is read alone, and those that stay keep their curves", async () => {
  series = [curve("train/loss", [1, 2])];
  await curves.open([job()]);
  curves.want("train/loss");
  await vi.advanceTimersByTimeAsync(10);
  const before = asked.length;
  series = [curve("train/loss", [5], { job: "job_b" })];
  await curves.open([job(), { ...job(), id: "job_b", name: "b" }]);
  await vi.advanceTimersByTimeAsync(10);
  expect(asked.slice(before).map(({ query }) => query.getAll("job"))).toEqual([["job_b"], ["job_b"]]);
  expect(curves.store.lines(["train/loss"], "step").map(({ jobId }) => jobId)).toEqual(["job_a", "job_b"]);
  await curves.open([{ ...job(), id: "job_b", name: "b" }]);
  expect(asked).toHaveLength(before + 2);
  expect(curves.store.lines(["train/loss"], "step").map(({ jobId }) => jobId)).toEqual(["job_b"]);
});

test("curves of 120 jobs come in answers of 50 jobs, and of those the ones that go on are followed", async () => {
  const many = Array.from({ length: 120 }, (_, i) => ({ ...job(), id: `job_${i}`, isEnded: i > 0 }));
  await curves.open(many);
  expect(asked.map(({ query }) => query.getAll("job").length)).toEqual([50, 50, 20]);
  expect(Object.keys(followed)).toEqual(["job_0"]);
});
