import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { AdviceView } from "../../api/wire";
import type { LiveEvent } from "../../live/events";
import { live } from "../../live/live.svelte";
import { setQuery } from "../../router.svelte";
import { changesOf, removeAll, serve, settled, show, signIn, textOf, textsOf } from "../../testing";
import Advice from "./Advice.svelte";
import Card from "./Card.svelte";
import Curves from "./Curves.svelte";
import Logs from "./Logs.svelte";
import { AT, view } from "./testing";

let tell: (event: LiveEvent) => void;

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(live, "watch").mockImplementation((_, listener) => {
    tell = listener;
    return () => undefined;
  });
});

afterEach(async () => {
  await removeAll();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("advice leads to the lines of the log that show it", () => {
  const advice = {
    ...{ severity: "error", headline: "It ran out of memory.", cause: null, steps: ["Halve the batch."] },
    evidence: [
      { kind: "log", text: "CUDA out of memory", line: 1042 },
      { kind: "device", text: "80 of 80 GiB", line: null },
    ],
  } as unknown as AdviceView;
  const host = show(Advice, { advice, job: view(), onstacks: null, unfolds: true });
  expect(textsOf(host, "a")).toEqual(["line 1042"]);
  expect(host.querySelector("a")?.href).toMatch(/jobs\/job_a\?tab=logs&line=1042$/);
  expect(textOf(host.querySelector(".step"))).toBe("Halve the batch.");
});

test("advice that has found numbers in the log leads to a copy of the job with curves, for who may submit", () => {
  const advice = {
    ...{ severity: "info", headline: "succeeded", cause: null, evidence: [], steps: [], starts_if: [] },
    metric_pattern: String.raw`loss[ =:]+(?P<value>\S+)`,
  } as unknown as AdviceView;
  const props = { advice, job: view(), onstacks: null, unfolds: true };
  expect(show(Advice, props).querySelector("a")).toBeNull();
  signIn("member", "jobs:write");
  const address = show(Advice, props).querySelector<HTMLAnchorElement>("a.curves")?.href ?? "";
  const { pathname, searchParams } = new URL(address);
  expect(pathname).toMatch(/submit$/);
  expect(Object.fromEntries(searchParams)).toEqual({ from: "job_a", metric: advice.metric_pattern });
});

test("one click makes curves of the log of a job that has ended", async () => {
  const advice = {
    ...{ severity: "info", headline: "succeeded", cause: null, evidence: [], steps: [], starts_if: [] },
    metric_pattern: String.raw`loss[ =:]+(?P<value>\S+)`,
  } as unknown as AdviceView;
  signIn("member", "jobs:write");
  const asked = serve(() => ({ keys: ["loss"], known: [], points: 40, complete: true }));
  const onmade = vi.fn();
  const props = { advice, onstacks: null, unfolds: true, onmade };
  expect(show(Advice, { ...props, job: view({ finished_at: null }) }).querySelector("button")).toBeNull();
  const host = show(Advice, { ...props, job: view({ owner: "ada", finished_at: AT }) });
  host.querySelector("button")?.click();
  await settled();
  expect(changesOf(asked)).toMatchObject([
    { method: "POST", path: "v1/jobs/job_a/metrics/from-log", body: { pattern: advice.metric_pattern } },
  ]);
  expect(textOf(host.querySelector("[role=status]"))).toBe("40 points");
  expect(onmade).toHaveBeenCalledOnce();
});

test("advice about a waiting job says when it starts, and what would start it now", () => {
  const at = (minute: number): string => new Date(2026, 10, 27, 14, minute).toISOString();
  vi.setSystemTime(at(0));
  const estimate = {
    ...{ expected: at(20), low: at(10), high: at(40), made_at: at(0), held: 158, of: 200 },
  };
  const status_reason = { code: "devices_busy", message: "m", estimate };
  const advice = {
    ...{ severity: "info", headline: "waits for devices", cause: "m", steps: [], evidence: [] },
    starts_if: [
      { change: "time_limit", value: "2h", message: "with `time_limit` ≤ 2h" },
      { change: "preemptible", value: "true", message: "if preemptible" },
    ],
  } as AdviceView;
  const props = { advice, onstacks: null, unfolds: true };
  const host = show(Advice, { ...props, job: view({ state: "queued", status_reason }) });
  expect(textOf(host.querySelector(".starts"))).toBe(
    "Expected start: between 14:10 and 14:40; 79% of the last 200 estimates were right.",
  );
  expect(textsOf(host, ".step")).toEqual(["Starts now with time_limit ≤ 2h.", "Starts now if preemptible."]);
  expect(textsOf(host, ".step code")).toEqual(["time_limit"]);
  const runs = show(Advice, { ...props, job: view({ status_reason }) });
  expect([runs.querySelector(".starts"), textsOf(runs, ".step")]).toEqual([null, []]);
});

test("the card shows what recipes write first, with units, and leaves out what is unknown", () => {
  const card = {
    zeta: "own",
    inference_seconds: 0.02,
    peak_memory_bytes: 2 ** 30,
    parameters: 7_760_000,
    data_hash: null,
  };
  const host = show(Card, { job: view({ card }) });
  expect(textsOf(host, "dt, th")).toEqual(["parameters", "inference seconds", "peak memory", "zeta"]);
  expect(textOf(host)).not.toContain("data hash");
});

test("a job without curves says when they begin", async () => {
  serve(() => ({ jobs: [{ job_id: "job_a", position: 1, keys: [] }], series: [] }));
  const curves = (state: string): HTMLElement =>
    show(Curves, { job: view({ state }), attempts: [], readAttempts: () => Promise.resolve() });
  const [waits, ended] = [curves("queued"), curves("succeeded")];
  await settled();
  expect(textOf(waits)).toContain("Curves begin with the first logged step.");
  expect(textOf(ended)).toContain("This job has logged no metrics.");
});

test("a log shows where an attempt resumed, and lines that come", async () => {
  const line = (number: number, attempt: number): Record<string, unknown> => ({
    ...{ line: number, time: AT, attempt, rank: 0, stream: "stdout", text: `line ${number}` },
  });
  serve(() => ({ data: [line(1, 1), line(2, 2)], total: 2 }));
  const host = show(Logs, { job: view({ attempt: 2 }), starts: new Map([[2, 1710]]) });
  await settled();
  expect(textsOf(host, ".seam")).toEqual(["attempt 2 resumes at step 1710"]);
  expect(textOf(host.querySelector(".foot"))).toBe("line 2 of 2 following");
  const items = { job_id: "job_a", position: 9, metrics: {}, events: [], logs: [line(3, 2)] };
  tell({ kind: "items", items } as unknown as LiveEvent);
  flushSync();
  expect(textOf(host.querySelector(".lines"))).toContain("line 3");
});

test("who chooses a line stays where they are", async () => {
  const lines = [1, 2, 3].map((line) => ({
    line,
    time: AT,
    attempt: 1,
    rank: 0,
    stream: "stdout",
    text: "x",
  }));
  serve(() => ({ data: lines, total: 3 }));
  const host = show(Logs, { job: view(), starts: new Map() });
  await settled();
  for (let i = 0; i < 2; i++)
    host
      .querySelector("[role=log]")
      ?.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowUp", bubbles: true }));
  flushSync();
  expect(textOf(host.querySelector(".foot"))).toBe("line 1 of 3 ↓ Jump to the end");
  host.querySelector<HTMLElement>("[data-line='2'] button, [data-line='2'] a")?.click();
  await settled();
  expect(host.querySelectorAll(".chosen")).toHaveLength(1);
  expect(textOf(host.querySelector(".foot"))).toBe("line 1 of 3 Copy line 2 ↓ Jump to the end");
  setQuery({ line: null });
});
