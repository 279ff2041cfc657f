import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { SweepView, TrialView } from "../../api/wire";
import type { LiveEvent } from "../../live/events";
import { live } from "../../live/live.svelte";
import { route, setQuery } from "../../router.svelte";
import {
  changesOf,
  click,
  removeAll,
  serve,
  settled,
  show,
  signIn,
  textOf,
  textsOf,
  type Asked,
} from "../../testing";
import { shortKeys } from "../../text/keys";
import Sweep from "./Sweep.svelte";
import { countsText, pointText, valueText, writtenAs } from "./sweeps";
import Sweeps from "./Sweeps.svelte";
import Trials from "./Trials.svelte";

const AT = "2026-01-01T00:00:00Z";
const COUNTS = {
  total: 9,
  waiting: 4,
  queued: 1,
  running: 2,
  paused: 0,
  succeeded: 1,
  failed: 1,
  cancelled: 0,
};

function sweep(changes: Record<string, unknown> = {}): SweepView {
  return {
    ...{ id: "swp_1", name: "lr", state: "running", owner: "ada", visibility: "private", method: "grid" },
    ...{ status_reason: { code: "running", message: "trials are made", since: AT }, monitor: "val/loss" },
    ...{ mode: "min", max_parallel: 3, trials: COUNTS, created_at: AT, finished_at: null, version: 1 },
    best: {
      trial: 2,
      job_id: "job_2",
      value: 0.25,
      point: { "config.optimizer.lr": 0.01 },
      checkpoint_id: "ckpt_1",
    },
    spec: { parameters: { "config.optimizer.lr": [0.1, 0.01], "args.seed": "1..2" } },
    ...changes,
  } as unknown as SweepView;
}

function trial(number: number, changes: Record<string, unknown> = {}): TrialView {
  return {
    ...{ number, job_id: `job_${number}`, state: "running", value: null, step: 0, epoch: null, rank: null },
    ...{ point: { "config.optimizer.lr": number / 10, "args.seed": 1 }, rung: null, error: null },
    ...changes,
  } as unknown as TrialView;
}

const TRIALS = [
  trial(2, { state: "succeeded", value: 0.25, rank: 1, step: 1200 }),
  trial(1, { value: 0.5, rank: 2 }),
  trial(0, { state: "failed", value: "NaN", error: "CUDA out of memory" }),
  trial(3, { state: "failed", job_id: null, error: "the quota is used" }),
];

const listeners = new Set<(event: LiveEvent) => void>();

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(live, "watch").mockImplementation((_, listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  });
  signIn("member", "jobs:read", "jobs:write");
});

afterEach(async () => {
  vi.runOnlyPendingTimers();
  await removeAll();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function tell(event: LiveEvent): void {
  for (const listener of listeners) listener(event);
}

async function open(
  view: SweepView = sweep(),
  trials: readonly TrialView[] = TRIALS,
): Promise<{ host: HTMLElement; asked: readonly Asked[] }> {
  const asked = serve(({ path }) => answer(path, view, trials));
  const host = show(Sweep, { id: "swp_1" });
  await settled();
  return { host, asked };
}

function answer(path: string, view: SweepView, trials: readonly TrialView[]): unknown {
  if (path.startsWith("v1/jobs/job_")) return null;
  if (path === "v1/jobs") return { data: [], has_more: false };
  return path.endsWith("/trials") ? { data: trials, has_more: false } : view;
}

function sent(asked: readonly Asked[]): readonly string[] {
  return changesOf(asked).map(({ method, path }) => `${method} ${path}`);
}

test("sweeps are listed with their state and counts", async () => {
  serve(() => ({ data: [sweep(), sweep({ id: "swp_2", state: "cancelled" })], has_more: false }));
  const host = show(Sweeps, {});
  await settled();
  const rows = [...host.querySelectorAll("tbody tr")].map((row) => textsOf(row, "td").slice(0, 6));
  const counts = "1 succeeded, 2 running, 1 queued, 1 failed, 4 waiting";
  expect(rows[0]).toEqual(["running", "lr", "2 of 9", counts, "grid", "val/loss, min"]);
  expect(rows[1]?.[0]).toBe("cancelled");
  expect(host.querySelector("tbody a")?.getAttribute("href")).toMatch(/sweeps\/swp_1$/);
});

test("bars stand where the list is being read", async () => {
  serve(() => ({ data: [], has_more: false }));
  const host = show(Sweeps, {});
  expect(textOf(host)).toBe("Sweeps Loading");
  await settled();
  expect(host.querySelector(".skeleton")).toBeNull();
});

test("without a sweep the page says how one comes about", async () => {
  serve(() => ({ data: [], has_more: false }));
  const host = show(Sweeps, {});
  await settled();
  expect(textOf(host)).toContain("torchyard submit sweep.yaml");
});

test("the list is read again when a job of a sweep changes, and for no other job", async () => {
  const asked = serve(() => ({ data: [sweep()], has_more: false }));
  show(Sweeps, {});
  await settled();
  tell({ kind: "job", job: { id: "job_9", sweep: null } } as unknown as LiveEvent);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(asked.length).toBe(1);
  tell({ kind: "job", job: { id: "job_1", sweep: { id: "swp_1" } } } as unknown as LiveEvent);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(asked.length).toBe(2);
});

test("a sweep ranks its trials, a column for each key, and links to their jobs", async () => {
  const { host } = await open();
  expect(textsOf(host, "thead th")).toEqual([
    "Curves",
    "Rank",
    "Trial",
    "State",
    "val/loss",
    "lr",
    "seed",
    "Step",
    "Error",
  ]);
  const rows = [...host.querySelectorAll("tbody tr")].map((row) => textsOf(row, "td:not(.eye)"));
  expect(rows[0]).toEqual(["best 1", "lr-2", "succeeded", "0.25", "0.2", "1", "1,200", ""]);
  expect(rows[2]).toEqual(["—", "lr-0", "failed", "NaN", "0", "1", "", "CUDA out of memory"]);
  expect(host.querySelectorAll("tr.best").length).toBe(1);
  const jobs = [...host.querySelectorAll("tbody tr")].map((row) =>
    row.querySelector("a")?.getAttribute("href"),
  );
  expect(jobs.map((job) => job?.replace(/.*\//, ""))).toEqual(["job_2", "job_1", "job_0", undefined]);
  expect(textOf(host.querySelector("header"))).toContain("best val/loss 0.25 of trial 2 lr 0.01");
});

test("a sweep leads to its jobs, and to a comparison of its five best", async () => {
  const ranked = [1, 2, 3, 4, 5, 6].map((rank) => trial(rank, { rank, value: rank }));
  const { host } = await open(sweep(), ranked);
  const links = [...host.querySelectorAll(".links a")].map((link) => link.getAttribute("href"));
  expect(links[0]).toMatch(/jobs\?sweep=swp_1&as=charts&sort=metric%3Aval%2Floss%3Amin$/);
  const table = new URLSearchParams(links[1]?.split("?")[1]);
  expect(table.get("columns")).toBe("config.optimizer.lr,args.seed,metric:val/loss:min,progress,age");
  expect(table.get("sort")).toBe("metric:val/loss:min");
  expect(decodeURIComponent(links[2] ?? "")).toMatch(/compare\?jobs=job_1,job_2,job_3,job_4,job_5$/);
  await removeAll();
  signIn("member", "jobs:read");
  expect(textsOf((await open(sweep(), [trial(0)])).host, ".links a")).toEqual([
    "Its jobs with curves",
    "Its jobs as a table",
  ]);
});

test("a trial's eye hides its curves, and its row stands out under the pointer", async () => {
  const { host } = await open();
  const row = (): Element | null => host.querySelector('tr[data-row="job_2"]');
  const eyes = (): readonly (string | null)[] =>
    [...host.querySelectorAll("td.eye button")].map((eye) => eye.getAttribute("aria-pressed"));
  expect(eyes(), "a trial without a job has no eye").toEqual(["true", "true", "true"]);
  row()?.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  flushSync();
  expect(row()?.classList.contains("marked")).toBe(true);
  row()?.querySelector<HTMLElement>(".eye button")?.click();
  flushSync();
  expect(eyes()).toEqual(["false", "true", "true"]);
  expect(route().query.get("hide")).toBe("job_2");
  row()?.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  flushSync();
  expect(row()?.classList.contains("marked"), "without a curve").toBe(false);
  setQuery({ hide: null });
});

test("its owner pauses and resumes it at once, and cancels it after the time for undo", async () => {
  const { host, asked } = await open();
  click(host, "Pause");
  await settled();
  click(host, "Cancel");
  await settled();
  expect(sent(asked)).toEqual(["POST v1/sweeps/swp_1/pause"]);
  await vi.advanceTimersByTimeAsync(5_000);
  expect(sent(asked).at(-1)).toBe("POST v1/sweeps/swp_1/cancel");
  expect(asked.find(({ path }) => path === "v1/jobs/actions")?.body, "what that costs").toEqual({
    ...{ action: "cancel", filter: { sweep: "swp_1" }, dry_run: true },
  });
  const paused = await open(sweep({ state: "paused" }));
  click(paused.host, "Resume");
  await settled();
  expect(sent(paused.asked)).toEqual(["POST v1/sweeps/swp_1/resume"]);
});

test("one that has ended is deleted after the time for undo", async () => {
  const { host, asked } = await open(sweep({ state: "finished" }));
  expect(textsOf(host, ".actions > button")).toEqual(["Delete"]);
  click(host, "Delete");
  await vi.advanceTimersByTimeAsync(5_000);
  expect(sent(asked)).toEqual(["DELETE v1/sweeps/swp_1"]);
});

test("who may not change it has no actions", async () => {
  signIn("viewer", "jobs:read");
  expect((await open()).host.querySelector(".actions")).toBeNull();
  await removeAll();
  signIn("member", "jobs:read", "jobs:write");
  expect((await open(sweep({ owner: "bob" }))).host.querySelector(".actions")).toBeNull();
});

test("trials are added where the method counts them, and the number at once is changed", async () => {
  const { host, asked } = await open(sweep({ method: "random" }));
  const [trials, parallel] = [...host.querySelectorAll<HTMLInputElement>("input[type=number]")];
  for (const [field, value] of [
    [trials, "5"],
    [parallel, "2"],
  ] as const) {
    if (!field) throw new Error("a field is not there");
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
  flushSync();
  host.querySelector("form")?.dispatchEvent(new SubmitEvent("submit", { cancelable: true }));
  await settled();
  expect(asked.find(({ method }) => method === "POST")?.body).toEqual({ trials: 5, max_parallel: 2 });
  await removeAll();
  signIn("member", "jobs:read", "jobs:write");
  expect((await open()).host.querySelectorAll("input[type=number]").length).toBe(1);
});

test("a trial that was stopped at a rung is promoted by its owner", async () => {
  const stopped = [trial(0, { state: "paused", rung: 1 }), trial(1, { state: "succeeded", rung: 3 })];
  const { host, asked } = await open(sweep({ method: "asha" }), stopped);
  expect(textsOf(host, "tbody td:not(.eye) button")).toEqual(["Promote"]);
  click(host, "Promote");
  await settled();
  expect(sent(asked)).toEqual(["POST v1/sweeps/swp_1/trials/0/promote"]);
});

test("what the service refuses is shown", async () => {
  serve(({ path, method }) => (method === "POST" ? null : answer(path, sweep(), [])));
  const host = show(Sweep, { id: "swp_1" });
  await settled();
  expect(textOf(host)).toContain("No trials yet.");
  click(host, "Pause");
  await settled();
  expect(textOf(host.querySelector("[role=alert]"))).toBe("There is none.");
});

test("a running sweep is read again when one of its jobs changes, and every few seconds", async () => {
  const { asked } = await open();
  const before = asked.length;
  tell({ kind: "job", job: { id: "job_7", sweep: { id: "swp_other" } } } as unknown as LiveEvent);
  await vi.advanceTimersByTimeAsync(1_500);
  expect(asked.length).toBe(before);
  tell({ kind: "job", job: { id: "job_1", sweep: { id: "swp_1" } } } as unknown as LiveEvent);
  await vi.advanceTimersByTimeAsync(1_500);
  expect(asked.length).toBe(before + 2);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(asked.length).toBeGreaterThan(before + 4);
});

test("only what is a number in all trials is set as numbers are", () => {
  const parameters = { "args.lr": [1, 2], "args.optimizer": ["adam", "sgd"], "args.clip": [1, "none"] };
  const trials = [
    trial(1, { point: { "args.lr": 1, "args.optimizer": "adam", "args.clip": 1 } }),
    trial(2, { point: { "args.lr": 2, "args.optimizer": "sgd", "args.clip": "none" } }),
  ];
  const host = show(Trials, { sweep: sweep({ spec: { parameters } }), trials, onchange: () => undefined });
  expect(textsOf(host, "th.number")).toEqual(["Rank", "val/loss", "lr", "Step"]);
});

test("a point that lists leave out is said to be long", () => {
  const trials = [trial(1), trial(2, { point: {}, point_omitted: true })];
  const host = show(Trials, { sweep: sweep(), trials, onchange: () => undefined });
  const left = [...host.querySelectorAll<HTMLElement>("td[title*='long']")];
  expect(left.map((cell) => cell.textContent)).toEqual(["…", "…"]);
});

test("keys and values are short, and keys differ", () => {
  const keys = ["config.model.name", "config.optimizer.name", "args.lr", "env.SEED"];
  expect([...shortKeys(keys).values()]).toEqual(["model.name", "optimizer.name", "lr", "SEED"]);
  expect([0.1 + 0.2, 3, "a", null, [1, 2]].map(valueText)).toEqual(["0.3", "3", "a", "null", "[1,2]"]);
  expect(pointText({ "config.optimizer.lr": 1e-4, "args.seed": 3 })).toBe("lr 0.0001, seed 3");
  expect(countsText(sweep({ trials: { ...COUNTS, waiting: 1234 } }))).toContain("1,234 waiting");
});

test("the page says how the arguments are written, and lines up typed numbers", () => {
  const styles = { "args.amp": "no-flag", "args.lr": "value" };
  const spec = { parameters: { "args.amp": [true, false], "args.lr": ["1e-4", "1e-3"] }, styles };
  const trials = [trial(0, { point: { "args.amp": false, "args.lr": "1e-4" } })];
  const host = show(Trials, { sweep: sweep({ spec }), trials, onchange: () => undefined });
  const titles = [...host.querySelectorAll("th[title]")].map((heading) => heading.getAttribute("title"));
  expect(titles).toEqual(["args.amp: --amp or --no-amp", "args.lr: --lr VALUE"]);
  expect(textsOf(host, "td.number")).toContain("1e-4");
  expect(
    ["equals", "flag", "words", "hydra", "placed", undefined].map((style) => writtenAs("args.x", style)),
  ).toEqual(["--x=VALUE", "--x or nothing", "--x VALUE VALUE …", "x=VALUE", "{x} in the arguments", ""]);
  expect(writtenAs("args.-lr", "value")).toBe("-lr VALUE");
});
