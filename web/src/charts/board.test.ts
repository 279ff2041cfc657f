import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { LiveEvent } from "../live/events";
import { Board } from "./board.svelte";

interface Asked {
  readonly path: string;
  readonly signal: AbortSignal | null;
}

const asked: Asked[] = [];
let attempts = 1;
let answers = true;
let board: Board;
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
  board = new Board((_, listener) => {
    tell = listener;
    return () => undefined;
  });
});

afterEach(() => {
  board.close();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function points(step: number, attempt: number): LiveEvent {
  const metrics = { "train/loss": { step: [step], value: [1], time: [step], attempt: [attempt] } };
  return { kind: "items", items: { job_id: "job_a", position: step, metrics, logs: [], events: [] } };
}

test("a new attempt is read while its points come without a pause", async () => {
  await board.open([{ id: "job_a", name: "a", perEpoch: null }]);
  board.want("train/loss");
  await vi.advanceTimersByTimeAsync(0);
  expect([askedFor("attempts").length, board.hasSeams()]).toEqual([1, false]);
  attempts = 2;
  for (let step = 11; step < 21; step++) {
    tell(points(step, 2));
    await vi.advanceTimersByTimeAsync(250);
  }
  expect([askedFor("attempts").length, board.hasSeams()]).toEqual([2, true]);
});

test("a service that answers slowly is waited for, however often the page hears that it missed something", async () => {
  await board.open([{ id: "job_a", name: "a", perEpoch: null }]);
  answers = false;
  for (let i = 0; i < 4; i++) {
    await vi.advanceTimersByTimeAsync(5000);
    tell({ kind: "changed", topic: "jobs" });
  }
  const again = askedFor("attempts").slice(1);
  expect(again.map(({ signal }) => signal?.aborted)).toEqual([false]);
});
