import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { LiveEvent } from "../live/events";
import { JobStore } from "../live/job.svelte";
import type { CurveJob } from "./attempts";
import { CurveLoader, type Follow } from "./loader";
import { CurveStore } from "./store.svelte";

interface Asked {
  readonly path: string;
  readonly signal: AbortSignal | null;
}

const asked: Asked[] = [];
let attempts = 1;
let answers = true;
let opened: JobStore;
let curves: CurveLoader;
let tell: (event: LiveEvent) => void;

/** A service with one job, which has one metric and as many attempts as the test says. */
function answer(target: string): Promise<Response> {
  if (!answers) return new Promise(() => undefined);
  const numbers = Array.from({ length: attempts }, (_, i) => i + 1);
  const data = numbers.map((number) => ({ number, start_step: 10 * (number - 1), devices: [] }));
  const jobs = [{ job_id: "job_a", position: 1, keys: [{ key: "train/loss" }] }];
  const body = target.includes("attempts") ? { data } : { jobs, series: [], max_points: 1500 };
  return Promise.resolve(new Response(JSON.stringify(body)));
}

function askedFor(part: string): readonly Asked[] {
  return asked.filter(({ path }) => path.includes(part));
}

beforeEach(() => {
  vi.useFakeTimers();
  [asked.length, attempts, answers] = [0, 1, true];
  vi.stubGlobal("fetch", (target: string, init: RequestInit) => {
    asked.push({ path: new URL(target).pathname, signal: init.signal ?? null });
    return answer(target);
  });
  opened = new JobStore("job_a");
  const follow: Follow = (_, listener) => {
    tell = listener;
    return () => undefined;
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

function points(step: number, attempt: number): LiveEvent {
  const metrics = { "train/loss": { step: [step], value: [1], time: [step], attempt: [attempt] } };
  return { kind: "items", items: { job_id: "job_a", position: step, metrics, logs: [], events: [] } };
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
