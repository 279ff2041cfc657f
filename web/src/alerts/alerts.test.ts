import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { EventView, JobSummary } from "../api/wire";
import type { LiveEvent } from "../live/events";
import { removeAll, serve, settled, type Asked } from "../testing";
import { Watcher, type Alert } from "./watcher";

const AT = "2026-01-01T00:00:00Z";

function job(changes: Record<string, unknown> = {}): JobSummary {
  return {
    ...{
      id: "job_1",
      name: "digits",
      owner: "ada",
      state: "running",
      position: 10,
      version: 1,
      created_at: AT,
    },
    ...{ status_reason: { code: "running", message: "runs" }, best: null, error: null, finished_at: null },
    ...changes,
  } as unknown as JobSummary;
}

function best(id: string, value: number): Record<string, unknown> {
  return { best: { metric: "val/loss", value, step: 7, checkpoint_id: id } };
}

function message(seq: number, data: Record<string, unknown>, type = "message"): EventView {
  return { seq, time: AT, type, attempt: 1, data } as EventView;
}

/** A watcher of ada's jobs, and what it tells. */
function watcher(): { watcher: Watcher; notified: Alert[] } {
  const notified: Alert[] = [];
  return { watcher: new Watcher("ada", (alert) => notified.push(alert)), notified };
}

test.each([
  ["succeeded", "digits succeeded"],
  ["failed", "digits failed"],
  ["cancelled", "digits was cancelled"],
  ["paused", "digits is paused"],
])("a job that is %s is notified of once, with its reason", (state, title) => {
  const { watcher: watches, notified } = watcher();
  watches.take(job());
  const ended = job({
    state,
    finished_at: state === "paused" ? null : AT,
    status_reason: { message: "why" },
  });
  watches.take(ended);
  watches.take(ended);
  expect(notified).toEqual([{ kind: "ends", jobId: "job_1", tag: `job_1 ${state}`, title, body: "why" }]);
});

test("what a job was before the page looked makes no notification", () => {
  const { watcher: watches, notified } = watcher();
  watches.take(job({ state: "failed", finished_at: AT }));
  watches.take(job({ ...best("ckpt_1", 0.5) }));
  expect(notified).toEqual([]);
});

test("jobs of others and of sweeps are left out", () => {
  const { watcher: watches, notified } = watcher();
  for (const whose of [{ owner: "bob" }, { sweep: { id: "swp_1", name: "rates", trial: 1 } }]) {
    watches.take(job(whose));
    watches.take(job({ ...whose, state: "failed", finished_at: AT }));
  }
  expect(notified).toEqual([]);
  expect(watches.positions().size).toBe(0);
});

test("a new best checkpoint is notified of with its value, and an old one is not again", () => {
  const { watcher: watches, notified } = watcher();
  for (const now of [{}, best("ckpt_1", 0.5), best("ckpt_1", 0.5), best("ckpt_2", 0.25)])
    watches.take(job(now));
  expect(notified.map(({ kind, tag, body }) => [kind, tag, body])).toEqual([
    ["best", "job_1 ckpt_1", "val/loss is 0.5 at step 7"],
    ["best", "job_1 ckpt_2", "val/loss is 0.25 at step 7"],
  ]);
});

test("warnings and errors of a job are notified of, and other messages are not", () => {
  const { watcher: watches, notified } = watcher();
  watches.take(job());
  watches.read("job_1", "digits", [
    message(11, { level: "info", text: "a" }),
    message(12, { level: "warning", text: "NaN" }),
    message(13, { level: "warning" }, "state"),
    message(14, { level: "error", text: "x".repeat(900) }),
  ]);
  watches.read("job_9", "other", [message(1, { level: "warning", text: "b" })]);
  expect(notified.map(({ tag, body }) => [tag, body.length])).toEqual([
    ["job_1 12", 3],
    ["job_1 14", 200],
  ]);
  expect(watches.positions()).toEqual(new Map([["job_1", 14]]));
});

/** Notifications that a browser shows. */
const shown: { title: string; options: NotificationOptions; self: FakeNotification }[] = [];

class FakeNotification {
  static permission: NotificationPermission = "default";
  static answer: NotificationPermission = "granted";
  static asked = 0;
  static requestPermission(): Promise<NotificationPermission> {
    this.asked += 1;
    this.permission = this.answer;
    return Promise.resolve(this.answer);
  }

  onclick: (() => void) | null = null;

  constructor(title: string, options: NotificationOptions) {
    shown.push({ title, options, self: this });
  }

  close(): void {
    // Nothing to close.
  }
}

let heard: (event: LiveEvent) => void = () => undefined;
let watches = 0;
let asked: readonly Asked[] = [];
let answers: Record<string, unknown> = {};

beforeEach(() => {
  vi.useFakeTimers();
  vi.resetModules();
  shown.length = 0;
  watches = 0;
  localStorage.clear();
  FakeNotification.permission = "default";
  FakeNotification.answer = "granted";
  FakeNotification.asked = 0;
  vi.stubGlobal("Notification", FakeNotification);
  vi.stubGlobal("isSecureContext", true);
  answers = { "v1/jobs": { data: [], has_more: false, next: null } };
  asked = serve(({ path }) => answers[path] ?? null);
});

afterEach(async () => {
  await removeAll();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

/** Loads the module as a new tab does. */
async function newTab(): Promise<typeof import("./alerts.svelte")> {
  const module = await import("./alerts.svelte");
  const { live: ofTab } = await import("../live/live.svelte");
  vi.spyOn(ofTab, "watch").mockImplementation((_, listener) => {
    heard = listener;
    watches += 1;
    return () => (watches -= 1);
  });
  return module;
}

test("nothing is asked and nothing watched until somebody allows it", async () => {
  const { alerts } = await newTab();
  alerts.start("ada");
  await settled();
  expect([FakeNotification.asked, watches, asked.length]).toEqual([0, 0, 0]);
  await alerts.ask();
  await settled();
  expect([alerts.permission, watches]).toEqual(["granted", 1]);
  expect(alerts.kinds).toEqual(["ends", "warnings"]);
  alerts.stop();
  expect(watches).toBe(0);
});

test("a refusal watches nothing", async () => {
  FakeNotification.answer = "denied";
  const { alerts } = await newTab();
  alerts.start("ada");
  await alerts.ask();
  expect([alerts.permission, watches]).toEqual(["denied", 0]);
});

test.each([
  ["insecure", () => vi.stubGlobal("isSecureContext", false)],
  ["missing", () => Reflect.deleteProperty(globalThis, "Notification")],
])("an address or a browser without notifications is %s", async (permission, without) => {
  without();
  const { alerts } = await newTab();
  alerts.start("ada");
  expect([alerts.permission, watches]).toEqual([permission, 0]);
});

test("what the stream tells is shown, and leads to the job", async () => {
  FakeNotification.permission = "granted";
  localStorage.setItem("torchyard-alerts", "ends");
  answers["v1/jobs"] = { data: [job()], has_more: false, next: null };
  const { alerts } = await newTab();
  alerts.start("ada");
  await settled();
  expect(asked[0]?.query.get("owner")).toBe("ada");
  heard({ kind: "job", job: job(best("ckpt_1", 1)) });
  heard({ kind: "job", job: job({ state: "failed", finished_at: AT, error: { message: "boom" } }) });
  expect(shown.map(({ title, options }) => [title, options])).toEqual([
    ["digits failed", { body: "boom", tag: "job_1 failed" }],
  ]);
  shown[0]?.self.onclick?.();
  expect(location.pathname).toMatch(/jobs\/job_1$/);
  alerts.stop();
});

test("what ended while there was no connection is notified of afterwards", async () => {
  FakeNotification.permission = "granted";
  localStorage.setItem("torchyard-alerts", "ends");
  answers["v1/jobs"] = { data: [job()], has_more: false, next: null };
  const { alerts } = await newTab();
  alerts.start("ada");
  await settled();
  answers = {
    "v1/jobs": { data: [], has_more: false },
    "v1/jobs/job_1": job({ state: "succeeded", finished_at: AT }),
  };
  heard({ kind: "changed", topic: "jobs" });
  await vi.advanceTimersByTimeAsync(15_000);
  await settled();
  expect(shown.map(({ title }) => title)).toEqual(["digits succeeded"]);
  alerts.stop();
});

test("changes of others' jobs read the list once in a while, and not each", async () => {
  FakeNotification.permission = "granted";
  localStorage.setItem("torchyard-alerts", "ends");
  const { alerts } = await newTab();
  alerts.start("ada");
  await settled();
  for (let at = 0; at < 40; at++) {
    heard({ kind: "changed", topic: "jobs" });
    await vi.advanceTimersByTimeAsync(250);
  }
  expect(asked).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(15_000);
  expect(asked).toHaveLength(2);
  alerts.stop();
});

test("a job that is gone hides none that has ended", async () => {
  FakeNotification.permission = "granted";
  localStorage.setItem("torchyard-alerts", "ends");
  answers["v1/jobs"] = { data: [job({ id: "job_0" }), job()], has_more: false, next: null };
  const { alerts } = await newTab();
  alerts.start("ada");
  await settled();
  answers = {
    "v1/jobs": { data: [], has_more: false },
    "v1/jobs/job_1": job({ state: "succeeded", finished_at: AT }),
  };
  heard({ kind: "changed", topic: "jobs" });
  await vi.advanceTimersByTimeAsync(15_000);
  await settled();
  expect(shown.map(({ title }) => title)).toEqual(["digits succeeded"]);
  alerts.stop();
});

test("messages are read once a minute, after those that were there", async () => {
  FakeNotification.permission = "granted";
  localStorage.setItem("torchyard-alerts", "warnings");
  answers["v1/jobs"] = { data: [job()], has_more: false, next: null };
  answers["v1/jobs/job_1"] = job();
  answers["v1/jobs/job_1/events"] = {
    data: [message(11, { level: "warning", text: "NaN" })],
    has_more: false,
  };
  const { alerts } = await newTab();
  alerts.start("ada");
  await settled();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(asked.find(({ path }) => path.endsWith("/events"))?.query.get("after")).toBe("10");
  answers["v1/jobs/job_1/events"] = { data: [], has_more: false };
  await vi.advanceTimersByTimeAsync(60_000);
  expect(
    asked
      .filter(({ path }) => path.endsWith("/events"))
      .at(-1)
      ?.query.get("after"),
  ).toBe("11");
  expect(shown.map(({ title, options }) => [title, options.body])).toEqual([["digits has a warning", "NaN"]]);
  alerts.stop();
});

test("a browser that shows none of a page says so", async () => {
  FakeNotification.permission = "granted";
  const { alerts } = await newTab();
  expect(alerts.test()).toBe(true);
  vi.stubGlobal("Notification", () => {
    throw new TypeError("Illegal constructor");
  });
  expect(alerts.test()).toBe(false);
});
