import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { ScheduleSummary } from "../../api/wire";
import type { LiveEvent } from "../../live/events";
import { live } from "../../live/live.svelte";
import { href, navigate } from "../../router.svelte";
import { click, removeAll, serve, settled, show, signIn, textOf, textsOf, type Asked } from "../../testing";
import Schedules from "./Schedules.svelte";

const HOUR_MS = 3_600_000;

/** Returns the time in so many hours, and half a minute: what passes meanwhile changes no text. */
function inHours(hours: number): string {
  return new Date(Date.now() + hours * HOUR_MS + Math.sign(hours) * 30_000).toISOString();
}

function schedule(changes: Record<string, unknown> = {}): ScheduleSummary {
  return {
    ...{ id: "sch_1", name: "nightly", owner: "ada", visibility: "private", state: "active" },
    ...{ schedule: { cron: "0 3 * * *", timezone: "Europe/Berlin", overlap: "skip", until: null } },
    ...{ status_reason: null, next_at: inHours(14), skipped: 2, last_error: null },
    last_run: { job_id: "job_1", due_at: inHours(-10) },
    created_at: inHours(-100),
    ...changes,
  } as unknown as ScheduleSummary;
}

let schedules: ScheduleSummary[] = [];
let tell: (event: LiveEvent) => void = () => undefined;

async function open(): Promise<{ host: HTMLElement; asked: readonly Asked[] }> {
  const asked = serve(({ method }) => {
    if (method === "DELETE") schedules = [];
    return { data: schedules, has_more: false };
  });
  const host = show(Schedules, {});
  await settled();
  return { host, asked };
}

function sent(asked: readonly Asked[]): readonly string[] {
  return asked.filter(({ method }) => method !== "GET").map(({ method, path }) => `${method} ${path}`);
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(live, "watch").mockImplementation((_, listener) => {
    tell = listener;
    return () => undefined;
  });
  signIn("admin", "jobs:read", "jobs:write");
  schedules = [];
});

afterEach(async () => {
  vi.runOnlyPendingTimers();
  await removeAll();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("a schedule leads to its runs, is run at once, and a new one is begun in the form", async () => {
  vi.stubGlobal("scrollTo", () => undefined);
  schedules = [schedule()];
  const { host } = await open();
  const runs = host.querySelector("[aria-label='Runs of nightly']")?.getAttribute("href");
  expect(runs).toBe(href("jobs", { schedule: "sch_1" }));
  const spec = { trainer: "script", name: "nightly" };
  const asked = serve(({ method }) => (method === "POST" ? { id: "job_7" } : { ...schedule(), spec }));
  click(host, "Run now");
  await settled();
  expect(asked.map(({ method, path, body }) => [method, path, body])).toEqual([
    ["GET", "v1/schedules/sch_1", undefined],
    ["POST", "v1/jobs", spec],
  ]);
  expect(location.pathname).toBe("/jobs/job_7");
  expect(host.querySelector(".head a")?.getAttribute("href")).toBe(href("submit", { schedule: "new" }));
  navigate(href(""));
});

test("schedules are listed with their next and last run, and why one was refused", async () => {
  const error = { code: "quota_exceeded", message: "ada has 10 <b>jobs</b>", at: inHours(-1) };
  const reason = { code: "paused", message: "paused by its owner" };
  schedules = [
    schedule({ last_error: error }),
    schedule({ id: "sch_2", state: "paused", status_reason: reason, next_at: null, last_run: null }),
  ];
  const { host } = await open();
  const rows = [...host.querySelectorAll("tbody tr")].map((row) => textsOf(row, "td").slice(0, 7));
  const times = "0 3 * * * Europe/Berlin";
  const refused = "refused 1h ago: ada has 10 <b>jobs</b>";
  expect(rows).toEqual([
    ["active", "nightly", times, "in 14h", "10h ago", "2", refused],
    ["paused", "nightly", times, "never", "none yet", "2", "paused by its owner"],
  ]);
  expect(host.querySelector("tbody a")?.getAttribute("href")).toMatch(/jobs\/job_1$/);
});

test("a schedule is paused, resumed and removed", async () => {
  schedules = [schedule()];
  const { host, asked } = await open();
  schedules = [schedule({ state: "paused", next_at: null })];
  click(host, "Pause");
  await settled();
  expect(asked.find(({ method }) => method === "PATCH")?.body).toEqual({ paused: true });
  schedules = [schedule()];
  click(host, "Resume");
  await settled();
  click(host, "Remove");
  await settled();
  expect(host.querySelectorAll("tbody tr").length).toBe(0);
  expect(sent(asked)).toEqual(["PATCH v1/schedules/sch_1", "PATCH v1/schedules/sch_1"]);
  await vi.advanceTimersByTimeAsync(5_000);
  expect(sent(asked).at(-1)).toBe("DELETE v1/schedules/sch_1");
});

test("nobody is offered what is refused", async () => {
  signIn("viewer", "jobs:read");
  schedules = [schedule()];
  const { host } = await open();
  expect(host.querySelectorAll("button").length).toBe(0);
});

test("without a schedule the page says how one comes about", async () => {
  const { host } = await open();
  expect(textOf(host)).toContain("torchyard submit job.yaml");
});

test("the list is read again when a run changes, and for no other job", async () => {
  schedules = [schedule()];
  const { asked } = await open();
  tell({ kind: "job", job: { id: "job_9", schedule_id: null } } as unknown as LiveEvent);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(asked.length).toBe(1);
  tell({ kind: "job", job: { id: "job_1", schedule_id: "sch_1" } } as unknown as LiveEvent);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(asked.length).toBe(2);
});
