import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { JobSummary } from "../../api/wire";
import { live } from "../../live/live.svelte";
import { setQuery } from "../../router.svelte";
import { click, removeAll, serve, settled, show, signIn, textOf, textsOf, type Asked } from "../../testing";
import { filterOf } from "./filter";
import Filters from "./Filters.svelte";
import Groups from "./Groups.svelte";
import Head from "./Head.svelte";
import Jobs from "./Jobs.svelte";
import Row from "./Row.svelte";
import Selected from "./Selected.svelte";

function job(id: string, changes: Record<string, unknown> = {}): JobSummary {
  return {
    ...{ id, name: `job ${id}`, state: "running", owner: "ada", attempt: 1, version: 1, position: 1 },
    ...{ created_at: "2026-01-01T00:00:00Z", started_at: null, finished_at: null, metrics: {}, best: null },
    ...{ progress: { step: 0 }, devices: [], error: null, status_reason: { code: "x", message: "why" } },
    ...{ monitor: null, labels: {} },
    ...changes,
  } as unknown as JobSummary;
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(live, "watch").mockReturnValue(() => undefined);
});

afterEach(async () => {
  await removeAll();
  setQuery({ state: null, q: null });
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function openRow(changes: Record<string, unknown>): HTMLElement {
  return show(Row, {
    ...{
      job: job("a", changes),
      curve: [],
      workers: new Map([["wrk_1", "box-a"]]),
      time: "created_at" as const,
    },
    ...{ isSelected: false, select: () => undefined },
  });
}

test("a row says how far a job is, why it waits or failed, and where it runs", () => {
  const progress = (changes: Record<string, unknown>): string =>
    textOf(openRow(changes).querySelector(".progress"));
  expect(progress({ state: "queued" })).toBe("why");
  const inSlurm = { code: "waiting_in_slurm", message: "Slurm: Priority" };
  expect(progress({ state: "starting", status_reason: inSlurm })).toBe("Slurm: Priority");
  expect(progress({ state: "failed", error: { message: "all of it" } })).toBe("why");
  expect(progress({ progress: { step: 5, fraction: 0.36, eta_seconds: 60 } })).toBe("36% 1m left");
  expect(progress({ progress: { step: 1710 } })).toBe("step 1,710");
  const devices = [0, 1].map((index) => ({ worker: "wrk_1", index, name: "GPU" }));
  expect(textOf(openRow({ devices }).querySelector(".devices"))).toBe("box-a:0,1");
});

test("a state is shown alone, all again when it was alone, and more with Shift", () => {
  const changes: unknown[] = [];
  const open = (states: string): HTMLElement =>
    show(Filters, {
      filter: filterOf(new URLSearchParams({ state: states })),
      ...{ counts: { running: 2, paused: 1 }, total: 1234, isCounted: true },
      change: (change) => changes.push(change["state"]),
    });
  const host = open("");
  expect(textsOf(host, ".states button")).toContain("paused 1");
  expect(textsOf(host, ".states button")[0]).toBe("all 1,234");
  click(host, "running 2");
  click(open("running"), "running 2");
  const failed = [...open("running").querySelectorAll("button")].find(
    (button) => textOf(button) === "failed 0",
  );
  failed?.dispatchEvent(new MouseEvent("click", { shiftKey: true, bubbles: true }));
  expect(changes).toEqual(["running", "", "running,failed"]);
});

test("a column sorts by itself, and the other way the second time", () => {
  const sorts: string[] = [];
  const open = (sort: string): HTMLElement =>
    show(Head, {
      filter: filterOf(new URLSearchParams(sort ? { sort } : {})),
      ...{ sort: (by: string) => sorts.push(by), isAllSelected: false, selectAll: () => undefined },
    });
  const host = open("");
  expect(host.querySelector("th.age")?.getAttribute("aria-sort")).toBe("descending");
  click(host, "Age");
  click(host, "Name");
  expect(sorts).toEqual(["-created", "name"]);
  expect(open("-created").querySelector("th.age")?.getAttribute("aria-sort")).toBe("ascending");
});

test("selected jobs offer what may be done with them", () => {
  const open = (changeable: number, isAll = false): readonly string[] =>
    textsOf(
      show(Selected, {
        ...{ ids: ["a", "b"], changeable, isAll, matching: 1000, isCounted: true },
        ...{ selectAll: () => undefined, clear: () => undefined, run: () => undefined },
      }),
      "strong, button, a, .muted",
    );
  signIn("viewer", "jobs:read");
  expect(open(0)).toEqual(["2 selected", "all 1,000 that match", "Compare", "Clear"]);
  signIn("member", "jobs:read", "jobs:write");
  const offer = "all 1,000 that match";
  const actions = ["Star", "Pause", "Resume", "Cancel", "Archive", "Delete", "Clear"];
  expect(open(1)).toEqual(["2 selected", offer, "1 of them yours", "Compare", ...actions]);
  expect(open(0)).toEqual(["2 selected", offer, "none of them yours", "Compare", "Star", "Clear"]);
  expect(open(1, true)).toEqual(["1,000 selected", ...actions]);
});

test("archived jobs are listed again or deleted", () => {
  signIn("member", "jobs:read", "jobs:write");
  const calls = { selectAll: () => undefined, clear: () => undefined, run: () => undefined };
  const one = { ids: ["a"], changeable: 1, isAll: false, isArchived: true, matching: 1, isCounted: true };
  expect(textsOf(show(Selected, { ...one, ...calls }), "button")).toEqual([
    ...["Star", "Unarchive", "Delete", "Clear"],
  ]);
});

test("jobs are grouped by a label, and a group lists its jobs", async () => {
  const groups = [
    { value: "roads", counts: { running: 2, failed: 1 }, total: 3 },
    { value: null, counts: { queued: 1 }, total: 1 },
  ];
  const asked = serve(() => ({ data: [], has_more: false, groups, groups_complete: false }));
  const chosen: string[] = [];
  const filter = filterOf(new URLSearchParams("group=team&state=running,failed,queued"));
  const host = show(Groups, { filter, count: 4, choose: (label) => chosen.push(label) });
  await vi.advanceTimersByTimeAsync(1_000);
  await settled();
  expect(asked[0]?.query.get("group_by")).toBe("label:team");
  expect(textsOf(host, "th")).toEqual(["team", "jobs", "running", "queued", "failed"]);
  expect(textsOf(host, "tbody td")).toEqual(["roads", "3", "2", "", "1", "without it", "1", "", "1", ""]);
  expect(textOf(host)).toContain("Of the newest 10,000 jobs");
  click(host, "roads");
  expect(chosen).toEqual(["team:roads"]);
});

test("a row says whether you have starred the job, and whether it has notes", () => {
  expect(textOf(openRow({ starred: true, has_notes: true }).querySelector(".name"))).toBe("★ job a ¶");
  expect(textOf(openRow({}).querySelector(".name"))).toBe("job a");
});

test("where not all jobs are counted, there may be more of each state, and more that match", () => {
  const filter = filterOf(new URLSearchParams({ q: "a", state: "failed" }));
  const shown = { filter, counts: { running: 2 }, total: 1000, isCounted: false, change: () => undefined };
  const states = textsOf(show(Filters, shown), ".states button");
  expect(states[0]).toBe("all 1,000+");
  expect(states).toContain("paused 0+");
  const calls = { selectAll: () => undefined, clear: () => undefined, run: () => undefined };
  const two = { ids: ["a", "b"], changeable: 2, isAll: false, matching: 0, isCounted: false };
  expect(textsOf(show(Selected, { ...two, ...calls }), "button")).toContain("all 0+ that match");
});

test("the jobs of one sweep are listed until all are asked for", () => {
  const changes: unknown[] = [];
  const filter = filterOf(new URLSearchParams({ sweep: "swp_1" }));
  const change = (made: unknown) => changes.push(made);
  const host = show(Filters, { filter, counts: {}, total: 0, isCounted: true, change });
  expect(host.querySelector(".sweep a")?.getAttribute("href")).toMatch(/sweeps\/swp_1$/);
  click(host, "all jobs");
  expect(changes).toEqual([{ sweep: null }]);
});

async function openList(): Promise<{ host: HTMLElement; asked: readonly Asked[] }> {
  const rows = ["a", "b", "c"].map((id) => job(id, id === "b" ? { owner: "bob" } : {}));
  const asked = serve(({ path, method }) => {
    if (method === "POST") return { matched: 2, done: 2, refused: [], more: false, data: [] };
    return path === "v1/workers"
      ? { data: [] }
      : { data: rows, counts: { running: 3 }, has_more: false, next: null };
  });
  const host = show(Jobs, {});
  await vi.advanceTimersByTimeAsync(100);
  await settled();
  return { host, asked };
}

test("Shift selects all between two rows, and an action goes to those that may be changed", async () => {
  signIn("member", "jobs:read", "jobs:write");
  const { host, asked } = await openList();
  const boxes = [...host.querySelectorAll<HTMLInputElement>("tbody input")];
  boxes[0]?.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  flushSync();
  boxes[2]?.dispatchEvent(new MouseEvent("click", { bubbles: true, shiftKey: true }));
  flushSync();
  expect(textOf(host.querySelector("[role=toolbar] strong"))).toBe("3 selected");
  click(host, "Pause");
  await settled();
  expect(asked.find(({ method }) => method === "POST")?.body).toMatchObject({
    action: "pause",
    ids: ["a", "c"],
  });
  expect(textOf(host.querySelector("[role=status]"))).toBe("Paused 2 jobs.");
});

test("a list of the cluster's workers is asked for by those who may read it", async () => {
  signIn("member", "jobs:read");
  expect((await openList()).asked.map(({ path }) => path)).not.toContain("v1/workers");
  await removeAll();
  signIn("member", "jobs:read", "cluster:read");
  expect((await openList()).asked.map(({ path }) => path)).toContain("v1/workers");
});
