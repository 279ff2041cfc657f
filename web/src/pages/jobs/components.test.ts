import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { JobSummary } from "../../api/wire";
import { live } from "../../live/live.svelte";
import { href, navigate, setQuery } from "../../router.svelte";
import { session } from "../../shell/session.svelte";
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
import { columnsOf, USUAL } from "../../runs/columns";
import { Edits } from "./editing.svelte";
import { filterOf } from "./filter";
import Filters from "./Filters.svelte";
import GroupRow from "./GroupRow.svelte";
import Head from "./Head.svelte";
import Jobs from "./Jobs.svelte";
import Picker from "./Picker.svelte";
import Row from "./Row.svelte";
import Selected from "./Selected.svelte";
import Table from "./Table.svelte";
import { watchedColumn } from "./watched";

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
  serve(() => ({ data: [], has_more: false }));
});

afterEach(async () => {
  await removeAll();
  setQuery({ state: null, q: null });
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function openRow(
  changes: Record<string, unknown>,
  columns: readonly string[] = USUAL,
  isNarrow = false,
): HTMLElement {
  return show(Row, {
    ...{
      job: job("a", changes),
      columns: columnsOf(columns),
      edits: new Edits(() => undefined),
      curve: [],
      workers: new Map([["wrk_1", "box-a"]]),
      time: "created_at" as const,
    },
    ...{ isNarrow, isSelected: false, select: () => undefined },
  });
}

test("on a phone a row has a second line, with why a job failed or what it measured", () => {
  expect(openRow({ state: "queued" }).querySelector(".second")).toBeNull();
  const second = (changes: Record<string, unknown>): string =>
    textOf(openRow(changes, USUAL, true).querySelector(".second"));
  expect(second({ state: "queued" })).toContain("why");
  expect(second({ state: "running", metrics: { "val/loss": 0.5 } })).toContain("val/loss 0.5");
});

test("the row of a waiting job says when it may start, and what for it waits", () => {
  const at = (hour: number, minute: number): string => new Date(2026, 10, 27, hour, minute).toISOString();
  vi.setSystemTime(at(14, 0));
  const times = { expected: at(14, 20), low: at(14, 10), high: at(14, 40), made_at: at(14, 0) };
  const status_reason = { code: "x", message: "why", estimate: { ...times, held: 158, of: 200 } };
  const waits = openRow({ state: "queued", status_reason });
  expect(textOf(waits.querySelector(".progress"))).toBe("14:10–14:40 why");
  expect(waits.querySelector<HTMLElement>(".progress span")?.title).toBe(
    "starts between 14:10 and 14:40; 79% of the last 200 estimates were right\nwhy",
  );
  const narrow = openRow({ state: "queued", status_reason }, USUAL, true);
  expect(textOf(narrow.querySelector(".second"))).toContain("14:10–14:40 why");
  expect(textOf(openRow({ state: "running", status_reason }))).not.toContain("14:10");
});

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

const TABLE = {
  ...{ columns: USUAL, query: "" },
  ...{ pick: () => undefined },
};

test("a row beside charts has an eye, and lights up with its curve", () => {
  const toggled: string[] = [];
  const marked: (string | null)[] = [];
  const colours = new Map([["a", { slot: 3, dash: [] }]]);
  const host = show(Table, {
    ...{ filter: filterOf(new URLSearchParams()), columns: columnsOf(["age"]), lines: [job("a"), job("b")] },
    ...{ count: 2, curves: new Map(), workers: new Map(), edits: new Edits(() => undefined) },
    ...{ isSelected: () => false, isAllSelected: false, select: () => undefined, selectAll: () => undefined },
    ...{ sort: () => undefined, toggle: () => undefined, moreOf: () => undefined, more: () => undefined },
    look: () => undefined,
    beside: {
      ...{ colours, marked: "a", toggle: (id: string) => toggled.push(id) },
      mark: (id: string | null) => marked.push(id),
    },
  });
  const [one, other] = host.querySelectorAll<HTMLElement>("tr[data-row]");
  expect([one?.className, other?.className].map((name) => /marked/.test(name ?? ""))).toEqual([true, false]);
  const eyes = [...host.querySelectorAll<HTMLElement>("td.eye button")];
  expect(eyes.map((eye) => eye.getAttribute("aria-pressed"))).toEqual(["true", "false"]);
  expect(eyes[0]?.querySelector(".slot-3")).not.toBeNull();
  eyes[1]?.click();
  expect(toggled).toEqual(["b"]);
  one?.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  other?.dispatchEvent(new PointerEvent("pointerover", { bubbles: true })); // it has no curves
  expect(marked).toEqual(["a", null]);
});

test("the page is the table alone or with charts, as the address says, and else as it was last", async () => {
  signIn("member", "jobs:read");
  serve(({ path }) => ({
    data: path === "v1/jobs" ? [job("a"), job("b")] : [],
    jobs: [],
    series: [],
    has_more: false,
  }));
  navigate(href("jobs"));
  const host = show(Jobs, {});
  await settled();
  expect(host.querySelector("td.eye")).toBeNull();
  click(host, "charts");
  expect(host.querySelectorAll("td.eye button[aria-pressed=true]")).toHaveLength(2);
  host.querySelector<HTMLElement>("td.eye button")?.click();
  await settled();
  expect(host.querySelectorAll("td.eye button[aria-pressed=true]")).toHaveLength(1);
  const address = new URLSearchParams(location.search);
  expect([address.get("as"), address.get("hide")]).toEqual(["charts", "a"]);
  await removeAll();
  signIn("member", "jobs:read");
  navigate(href("jobs", Object.fromEntries(address)));
  const again = show(Jobs, {});
  await settled();
  expect(again.querySelectorAll("td.eye button[aria-pressed=true]")).toHaveLength(1);
  click(again, "table");
  expect(again.querySelector("td.eye")).toBeNull();
  navigate(href("jobs"));
});

test("a state is shown alone, all again when it was alone, and more with Shift", () => {
  const changes: unknown[] = [];
  const open = (states: string): HTMLElement =>
    show(Filters, {
      filter: filterOf(new URLSearchParams({ state: states })),
      ...{ counts: { running: 2, paused: 1 }, total: 1234, isCounted: true, ...TABLE },
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
      columns: columnsOf([...USUAL, "metric:val/iou:best", "metric:val/loss:last"]),
      ...{ sort: (by: string) => sorts.push(by), isAllSelected: false, selectAll: () => undefined },
    });
  const host = open("");
  expect(host.querySelector("th.age")?.getAttribute("aria-sort")).toBe("descending");
  click(host, "Age");
  click(host, "Name");
  click(host, "val/iou best");
  click(host, "val/loss last");
  click(open("-metric:val/iou:best"), "val/iou best");
  expect(sorts).toEqual([
    ...["-created", "name", "-metric:val/iou:best", "metric:val/loss:last", "metric:val/iou:best"],
  ]);
  expect(open("-created").querySelector("th.age")?.getAttribute("aria-sort")).toBe("ascending");
});

test("the first click on the watched metric lists the best first", () => {
  const jobs = [job("a", { metrics: { "val/iou": 0.7, "train/loss": 1 } }), job("b")];
  const watched = watchedColumn(jobs);
  expect(watched).toBe("metric:val/iou:last");
  const sorts: string[] = [];
  const open = (sort: string): HTMLElement =>
    show(Head, {
      filter: filterOf(new URLSearchParams({ sort })),
      columns: columnsOf(["metric", "metric:val/loss:best"], watched),
      ...{ sort: (by: string) => sorts.push(by), isAllSelected: false, selectAll: () => undefined },
    });
  const host = open("created");
  click(host, "Metric");
  click(host, "val/loss best");
  click(open("-metric:val/iou:last"), "Metric");
  expect(sorts).toEqual(["-metric:val/iou:last", "metric:val/loss:best", "metric:val/iou:last"]);
  expect(watchedColumn([job("a", { best: { metric: "val/f1", value: 1 } })])).toBe("metric:val/f1:best");
  expect(watchedColumn([])).toBeNull();
});

test("selected jobs offer what may be done with them", () => {
  const open = (changeable: number, isAll = false): readonly string[] =>
    textsOf(
      show(Selected, {
        ...{ ids: ["a", "b"], changeable, isAll, matching: 1000, isCounted: true },
        ...{
          selectAll: () => undefined,
          clear: () => undefined,
          run: () => undefined,
          label: () => undefined,
        },
      }),
      "strong, button, a, .muted",
    );
  signIn("viewer", "jobs:read");
  expect(open(0)).toEqual(["2 selected", "all 1,000 that match", "Compare", "Clear"]);
  signIn("member", "jobs:read", "jobs:write");
  const offer = "all 1,000 that match";
  const actions = ["Star", "Label", "Pause", "Resume", "Cancel", "Archive", "Delete", "Clear"];
  expect(open(1)).toEqual(["2 selected", offer, "1 of them yours", "Compare", ...actions]);
  expect(open(0)).toEqual(["2 selected", offer, "none of them yours", "Compare", "Star", "Clear"]);
  expect(open(1, true)).toEqual(["1,000 selected", ...actions]);
});

test("archived jobs are listed again or deleted", () => {
  signIn("member", "jobs:read", "jobs:write");
  const calls = {
    selectAll: () => undefined,
    clear: () => undefined,
    run: () => undefined,
    label: () => undefined,
  };
  const one = { ids: ["a"], changeable: 1, isAll: false, isArchived: true, matching: 1, isCounted: true };
  expect(textsOf(show(Selected, { ...one, ...calls }), "button")).toEqual([
    ...["Star", "Unarchive", "Delete", "Clear"],
  ]);
});

test("a group has its counts, and the mean and spread of each column", () => {
  const columns = { "metric:val/loss:best": { count: 3, mean: 0.5, std: 0.25, min: 0.25, max: 0.75 } };
  const counts = { running: 2, failed: 1 };
  const toggled: string[] = [];
  const open = (value: string | null): HTMLElement =>
    show(GroupRow, {
      group: { key: "=roads", value, name: null, counts, total: 3, columns },
      ...{ by: "label:team", columns: columnsOf(["owner", "metric:val/loss:best", "config.optimizer.lr"]) },
      ...{ isOpen: false, toggle: () => toggled.push("roads") },
    });
  const host = open("roads");
  expect(textsOf(host, "td")).toEqual(["roads 3 jobs 2 running 1 failed", "0.5 ± 0.25", ""]);
  expect(host.querySelector("td")?.getAttribute("aria-colspan")).toBe("3"); // state, name and owner
  click(host, "roads 3 jobs 2 running 1 failed");
  expect(toggled).toEqual(["roads"]);
  expect(textOf(open(null))).toContain("without team");
});

test("grouped jobs are one row until their group is opened, which the address holds", async () => {
  signIn("member", "jobs:read");
  setQuery({ group: "team", columns: "config.optimizer.lr" });
  const group = { key: "=a,b", value: "a,b", name: null, counts: { running: 1 }, total: 1 };
  const asked = serve(({ query }) => {
    const data = query.get("in_group") === "=a,b" ? [job("inside")] : [];
    return {
      data,
      has_more: false,
      next: null,
      groups: [group],
      groups_complete: false,
      counts: {},
      total: 1,
    };
  });
  const host = show(Jobs, {});
  await vi.advanceTimersByTimeAsync(100);
  await settled();
  expect(textsOf(host, "tbody [data-row]")).toEqual(["a,b 1 job 1 running"]);
  expect(textOf(host)).toContain("Among the newest 10,000 matching jobs");
  click(host, "a,b 1 job 1 running");
  await settled();
  expect(textsOf(host, "tbody .name a")).toEqual(["job inside"]);
  const last = asked.at(-1)?.query;
  expect([last?.get("group_by"), last?.getAll("columns")]).toEqual(["label:team", ["config.optimizer.lr"]]);
  expect(new URLSearchParams(location.search).get("open")).toBe("=a%2Cb");
  setQuery({ open: "%E0%A4%A,%" });
  await settled();
  expect(textsOf(host, "tbody [data-row]")).toEqual(["a,b 1 job 1 running"]);
  setQuery({ group: null, columns: null, open: null });
});

test("chosen columns show what the service answers, and the page keeps them", async () => {
  signIn("member", "jobs:read", "jobs:write");
  setQuery({ columns: "config.optimizer.lr,label:team,notes" });
  const row = {
    ...job("a", { labels: { team: "x" } }),
    columns: { "config.optimizer.lr": 0.00002, "label:team": "x", notes: "worse" },
  };
  const asked = serve(({ path, method }) => {
    if (method === "POST")
      return { matched: 1, done: 0, refused: [{ code: "conflict", message: "no" }], more: false };
    return path === "v1/jobs"
      ? { data: [row], counts: {}, total: 1, has_more: false, next: null }
      : { data: [] };
  });
  const host = show(Jobs, {});
  await vi.advanceTimersByTimeAsync(100);
  await settled();
  expect(textsOf(host, "td.cell")).toEqual(["2e-5", "x", "worse"]);
  expect(asked.find(({ path }) => path === "v1/jobs")?.query.getAll("columns")).toEqual([
    ...["config.optimizer.lr", "label:team", "notes"],
  ]);
  click(host, "x");
  flushSync();
  const field = host.querySelector<HTMLInputElement>("td.cell input");
  if (field) {
    field.value = "y";
    field.dispatchEvent(new Event("input", { bubbles: true }));
    field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  }
  flushSync();
  expect(textsOf(host, "td.cell")[1]).toBe("y"); // at once
  await settled();
  expect(asked.at(-1)?.body).toEqual({ action: "label", ids: ["a"], labels: { team: "y" } });
  expect(textsOf(host, "td.cell")[1]).toBe("x"); // as the service has refused it
  expect(textOf(host.querySelector("[role=alert]"))).toContain("no");
  setQuery({ columns: null });
});

test("columns that another program kept are shown as far as they are some", async () => {
  signIn("member", "jobs:read");
  const preferences = { "runs.columns": { names: [7, null, "constructor", "label:constructor"] } };
  if (session.me) session.me = { ...session.me, name: "hal", preferences };
  serve(({ path }) =>
    path === "v1/jobs"
      ? { data: [job("a")], counts: {}, total: 1, has_more: false, next: null }
      : { data: [] },
  );
  const host = show(Jobs, {});
  await vi.advanceTimersByTimeAsync(100);
  await settled();
  expect(textsOf(host, "td.cell")).toEqual(["", ""]);
  setQuery({ columns: null });
});

test("the columns that are kept stand in the address of Jobs, and of no other page", async () => {
  signIn("member", "jobs:read");
  const preferences = { "runs.columns": { names: ["age", "config.optimizer.lr"] } };
  if (session.me) session.me = { ...session.me, name: "hal", preferences };
  serve(() => ({ data: [], counts: {}, total: 0, has_more: false, next: null }));
  const before = location.href;
  navigate(href("jobs"));
  show(Jobs, {});
  await settled();
  expect(new URLSearchParams(location.search).get("columns")).toBe("age,config.optimizer.lr");
  navigate(href("jobs/job_1"));
  await settled();
  expect(location.search).toBe("");
  navigate(before);
});

test("a star is given from its row", async () => {
  signIn("member", "jobs:read", "jobs:write");
  const { host, asked } = await openList();
  const star = host.querySelector<HTMLElement>("tbody .star");
  star?.click();
  flushSync();
  expect(star?.getAttribute("aria-pressed")).toBe("true");
  await settled();
  expect(asked.filter(({ method }) => method === "PUT").map(({ path }) => path)).toEqual(["v1/jobs/a/star"]);
});

test("columns are found, chosen, moved by keys and taken away", async () => {
  serve(() => ({
    data: [
      { name: "config.optimizer.lr", jobs: 3, differs: true },
      { name: "config.training.seed", jobs: 3, differs: false },
      { name: "metric:val/loss:last", jobs: 2, differs: true },
    ],
    jobs: 3,
  }));
  let names: readonly string[] = ["owner", "label:team"];
  const open = (): HTMLElement =>
    show(Picker, {
      ...{ filter: filterOf(new URLSearchParams()), names },
      choose: (chosen) => (names = chosen),
      reset: () => undefined,
      close: () => undefined,
    });
  const host = open();
  await settled();
  expect(textsOf(host, "ol li > span")).toEqual(["Owner", "team"]);
  expect(textOf(host.querySelector("ul li:last-child"))).toContain("config.training.seed");
  host.querySelector<HTMLElement>("[aria-label='val/loss best']")?.click();
  expect(names).toEqual(["metric:val/loss:best", "owner", "label:team"]); // beside the job's name
  const handle = host.querySelector<HTMLElement>("[aria-label^='Move Owner']");
  handle?.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown", bubbles: true }));
  expect(names).toEqual(["label:team", "owner"]);
  host.querySelector<HTMLElement>("[aria-label='Remove Owner']")?.click();
  expect(names).toEqual(["label:team"]);
});

test("each filter can be taken back", () => {
  const changes: unknown[] = [];
  signIn("member", "jobs:read");
  const host = show(Filters, {
    filter: filterOf(new URLSearchParams("q=lr&owner=ada&label=team:x&state=failed,running")),
    ...{ counts: {}, total: 0, isCounted: true, ...TABLE, query: "q=lr" },
    change: (made: unknown) => changes.push(made),
  });
  const chips = textsOf(host, "[aria-label='Active filters'] button");
  expect(chips).toEqual(["“lr”", "of ada", "team: x", "failed", "running", "show all"]);
  click(host, "failed");
  click(host, "mine");
  expect(changes).toEqual([{ state: "running" }, { owner: null }]);
});

test("a row says whether you have starred the job, and whether it has notes", () => {
  signIn("member", "jobs:read", "jobs:write");
  const starred = openRow({ starred: true, has_notes: true });
  expect(textsOf(starred, ".name a")).toEqual(["job a", "¶"]);
  expect(starred.querySelector(".star")?.getAttribute("aria-pressed")).toBe("true");
  expect(openRow({}).querySelector(".star")?.getAttribute("aria-pressed")).not.toBe("true");
});

test("where not all jobs are counted, there may be more of each state, and more that match", () => {
  const filter = filterOf(new URLSearchParams({ q: "a", state: "failed" }));
  const shown = {
    filter,
    counts: { running: 2 },
    total: 1000,
    isCounted: false,
    change: () => undefined,
    ...TABLE,
  };
  const states = textsOf(show(Filters, shown), ".states button");
  expect(states[0]).toBe("all 1,000+");
  expect(states).toContain("paused 0+");
  const calls = {
    selectAll: () => undefined,
    clear: () => undefined,
    run: () => undefined,
    label: () => undefined,
  };
  const two = { ids: ["a", "b"], changeable: 2, isAll: false, matching: 0, isCounted: false };
  expect(textsOf(show(Selected, { ...two, ...calls }), "button")).toContain("all 0+ that match");
});

test("the jobs of one sweep are listed until all are asked for", () => {
  const changes: unknown[] = [];
  const filter = filterOf(new URLSearchParams({ sweep: "swp_1" }));
  const change = (made: unknown) => changes.push(made);
  const host = show(Filters, { filter, counts: {}, total: 0, isCounted: true, change, ...TABLE });
  click(host, "of one sweep");
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

test("all that are selected are labelled at once", async () => {
  signIn("admin", "jobs:read", "jobs:write");
  const { host, asked } = await openList();
  host.querySelector<HTMLElement>("thead input")?.click();
  flushSync();
  click(host, "Label");
  const field = host.querySelector<HTMLInputElement>("[role=toolbar] input");
  expect(document.activeElement).toBe(field);
  if (field) field.value = "paper=figure-3, checked";
  field?.dispatchEvent(new Event("input", { bubbles: true }));
  field?.form?.requestSubmit();
  await settled();
  const labels = { paper: "figure-3", checked: "" };
  expect(changesOf(asked).map(({ body }) => body)).toEqual([
    { action: "label", ids: ["a", "b", "c"], dry_run: false, labels },
  ]);
  expect(textOf(host.querySelector(".outcome"))).toBe("Labelled 2 jobs.");
});

test("Shift selects all between two rows, and an action goes to those that may be changed", async () => {
  signIn("member", "jobs:read", "jobs:write");
  const { host, asked } = await openList();
  const boxes = [...host.querySelectorAll<HTMLInputElement>("tbody .check input")];
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

test("up to fifty selected jobs are compared by their ids, and all that match by what finds them", () => {
  const link = (count: number, isAll: boolean): string | null => {
    const ids = Array.from({ length: count }, (_, i) => `job_${i}`);
    const host = show(Selected, {
      ...{ ids, changeable: 0, isAll, matching: 1000, isCounted: true },
      ...{ selectAll: () => undefined, clear: () => undefined, run: () => undefined, label: () => undefined },
    });
    return host.querySelector("a.compare")?.getAttribute("href") ?? null;
  };
  setQuery({ q: "unet", state: "failed" });
  expect(link(50, false)).toMatch(/compare\?jobs=job_0%2C.*job_49$/);
  expect(link(51, false)).toBeNull();
  expect(link(2, true)).toMatch(/compare\?q=unet&state=failed$/);
});
