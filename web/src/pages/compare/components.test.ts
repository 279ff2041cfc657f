import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { JobSummary, JobView } from "../../api/wire";
import type { LiveEvent } from "../../live/events";
import { live } from "../../live/live.svelte";
import { route, setQuery } from "../../router.svelte";
import { click, removeAll, serve, settled, show, textOf, textsOf } from "../../testing";
import type { Compared } from "./compared";
import Compare from "./Compare.svelte";
import Picker from "./Picker.svelte";
import Results from "./Results.svelte";
import SpecDiff from "./SpecDiff.svelte";
import type { CompareView } from "./view";

let tell: (event: LiveEvent) => void;

function view(id: string, changes: Record<string, unknown> = {}): JobView {
  return {
    ...{ id, name: `job ${id}`, state: "succeeded", owner: "ada", attempt: 1, version: 1, position: 1 },
    ...{
      created_at: "2026-01-01T00:00:00Z",
      started_at: null,
      metrics: {},
      progress: { step: 0 },
      best: null,
    },
    ...{ spec: { config: { lr: 0.1 }, trainer: "x", checkpoint: { monitor: "val/loss" } }, devices: [] },
    ...changes,
  } as unknown as JobView;
}

function compared(id: string, changes: Record<string, unknown> = {}): Compared {
  return { id, view: view(id, changes), colour: { slot: 1, dash: [] }, devices: "" };
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(live, "watch").mockImplementation((_, listener) => {
    tell = listener;
    return () => undefined;
  });
});

afterEach(async () => {
  await removeAll();
  setQuery({ jobs: null });
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("comparing jobs reads each of them once, its attempts too, and follows them", async () => {
  const asked = serve(({ path }) => {
    if (path === "v1/metrics")
      return { jobs: ["a", "b"].map((job_id) => ({ job_id, position: 1, keys: [] })), series: [] };
    if (path.endsWith("/c")) return null;
    if (path.endsWith("/attempts")) return { data: [{ number: 1, worker: "box", devices: [{ index: 3 }] }] };
    return view(path.slice(-1));
  });
  setQuery({ jobs: "a,b,c" });
  const host = show(Compare, {});
  await settled();
  await vi.advanceTimersByTimeAsync(500);
  flushSync();
  const reads = asked.map(({ path }) => path).filter((path) => path.startsWith("v1/jobs/"));
  expect(reads.toSorted()).toEqual([
    ...["v1/jobs/a", "v1/jobs/a/attempts", "v1/jobs/b", "v1/jobs/b/attempts", "v1/jobs/c"],
  ]);
  expect(textsOf(host, "tbody td.name")).toEqual(["job a", "job b"]);
  expect(document.title).toBe("Compare job a, job b – Torchyard");
  expect(textsOf(host, "tbody td:nth-last-child(2)")).toEqual(["box:3", "box:3"]);
  expect(textOf(host)).toContain("One job is not found, or not readable for you: c");
  tell({ kind: "job", job: view("a", { version: 2, name: "renamed" }) as JobSummary });
  flushSync();
  await vi.advanceTimersByTimeAsync(500);
  flushSync();
  expect(textsOf(host, "tbody td.name")).toEqual(["renamed", "job b"]);
  tell({ kind: "deleted", jobId: "a" });
  flushSync();
  expect(textsOf(host, "tbody td.name")).toEqual(["job b"]);
});

test("the index leads to each section that is there", async () => {
  serve(({ path }) => {
    if (path === "v1/metrics") return { jobs: [], series: [] };
    return path.endsWith("/attempts") ? { data: [] } : view(path.slice(-1));
  });
  setQuery({ jobs: "a,b" });
  const host = show(Compare, {});
  await vi.advanceTimersByTimeAsync(2_000);
  await settled();
  const links = [...host.querySelectorAll('nav[aria-label="Sections"] a')];
  expect(links.map((link) => link.textContent)).toEqual([
    ...["Values", "Curves", "Samples", "Parameters", "Spec", "Code and packages"],
  ]);
  await vi.dynamicImportSettled();
  await settled();
  for (const link of links) expect(host.querySelector(link.getAttribute("href") ?? "")).not.toBeNull();
  setQuery({ jobs: "a" });
  await vi.advanceTimersByTimeAsync(2_000);
  await settled();
  expect(textsOf(host, 'nav[aria-label="Sections"] a')).toEqual(["Values", "Curves", "Samples"]);
});

test("jobs that cannot be read are said once, leave no empty table, and go away together", async () => {
  serve(({ path }) => (path === "v1/metrics" ? { jobs: [], series: [] } : null));
  setQuery({ jobs: "a,b" });
  const host = show(Compare, {});
  await settled();
  await vi.advanceTimersByTimeAsync(500);
  flushSync();
  expect(textOf(host)).toContain("2 jobs are not found, or not readable for you: a, b");
  expect(host.querySelector("table")).toBeNull();
  click(host, "Remove");
  expect(route().query.get("jobs") ?? "").toBe("");
});

test("of more than fifty jobs the first fifty are compared, and the next one follows a job that is removed", async () => {
  serve(({ path }) =>
    path === "v1/metrics"
      ? { jobs: [], series: [] }
      : path.endsWith("attempts")
        ? { data: [] }
        : view(path.slice(8)),
  );
  const ids = Array.from({ length: 52 }, (_, i) => `j${i}`);
  setQuery({ jobs: [...ids, "j0"].join(",") });
  const host = show(Compare, {});
  await settled();
  await vi.advanceTimersByTimeAsync(500);
  flushSync();
  expect(textOf(host)).toContain("The address names 52 jobs: the first 50 are compared.");
  expect(textsOf(host, "tbody td.name")).toHaveLength(50);
  host.querySelector<HTMLButtonElement>("[aria-label='Remove job j0']")?.click();
  flushSync();
  expect(route().query.get("jobs")).toBe(ids.slice(1).join(","));
});

test("the picker finds jobs by name, leaves out those that are chosen, and takes one by the keyboard", async () => {
  const asked = serve(() => ({ data: ["a", "b", "c"].map((id) => view(id)) }));
  const chosen: string[] = [];
  const host = show(Picker, { chosen: ["a"], choose: (id) => chosen.push(id) });
  const field = host.querySelector("input");
  if (!field) throw new Error("no field");
  field.focus();
  field.value = "unet";
  field.dispatchEvent(new Event("input", { bubbles: true }));
  await vi.advanceTimersByTimeAsync(200);
  await settled();
  expect(asked.map(({ query }) => query.get("q"))).toEqual(["unet"]);
  expect(textsOf(host, ".name")).toEqual(["job b", "job c"]);
  for (const key of ["ArrowDown", "ArrowDown", "Enter"])
    field.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  expect(chosen).toEqual(["c"]);
});

const PLAIN: CompareView = { base: null, sort: "", group: "", isBest: false, metrics: null, pair: [] };

function results(jobs: readonly Compared[], view: Partial<CompareView> = {}) {
  const said: unknown[] = [];
  const host = show(Results, {
    ...{
      jobs,
      extremes: null,
      view: { ...PLAIN, ...view },
      change: (changes: Partial<CompareView>) => said.push(changes),
    },
    ...{ remove: (id: string) => said.push(id), reorder: (ids: readonly string[]) => said.push(ids) },
  });
  return { host, said };
}

test("the table has values of each job, and a way to remove it", () => {
  const jobs = [
    compared("a", { metrics: { "val/iou": 0.5 }, started_at: new Date().toISOString() }),
    compared("b", { best: { metric: "val/iou", value: 0.25 } }),
  ];
  const { host, said } = results(jobs);
  expect(textsOf(host, "th.number")).toEqual(["best val/iou", "val/iou", "ran for"]);
  expect(textsOf(host, "tbody tr:first-child td.number").slice(0, 2)).toEqual(["—", "0.5"]);
  click(host.querySelector("tbody tr:last-child") ?? host, "✕");
  expect(said).toEqual(["b"]);
});

const lr = (value: number): Record<string, unknown> => ({ spec: { config: { lr: value }, trainer: "x" } });
const THREE = [
  compared("a", { ...lr(0.1), metrics: { "val/iou": 0.5 } }),
  compared("b", { ...lr(0.01), metrics: { "val/iou": 0.6 } }),
  compared("c", { ...lr(1), metrics: { "val/iou": 0.4 } }),
];

test("what differs in the specs is a column, and the best value of a metric is marked", () => {
  const { host } = results(THREE);
  expect(textsOf(host, "thead th").slice(2, 5)).toEqual(["state", "lr", "val/iou"]);
  expect(textsOf(host, "tbody td:nth-child(4)")).toEqual(["0.1", "0.01", "1"]);
  const marked = [...host.querySelectorAll("[aria-label=best]")].map((sign) => textOf(sign.closest("tr")));
  expect(marked.map((row) => row.slice(0, 5))).toEqual(["job b"]);
  const even = results([...THREE, compared("d", { metrics: { "val/iou": 0.6 } })]).host;
  expect(even.querySelectorAll("[aria-label=best]")).toHaveLength(2);
});

test("a baseline is chosen, and the others say how far they are from it, and whether that is better", () => {
  const { host, said } = results(THREE, { base: "a" });
  expect(textsOf(host, "tbody td:nth-child(5)")).toEqual(["0.5", "0.6 +0.1 +20%", "0.4 −0.1 −20%"]);
  const verdicts = [...host.querySelectorAll("td:nth-child(5) .delta svg")];
  expect(verdicts.map((sign) => sign.getAttribute("aria-label"))).toEqual(["better", "worse"]);
  host.querySelectorAll<HTMLInputElement>("input[type=radio]")[2]?.click();
  click(host, "No baseline");
  expect(said).toEqual([{ base: "c" }, { base: null }]);
});

test("the best of a metric come first, then last, and then the jobs in their order", () => {
  const press = (sort: string, title = "val/iou"): unknown => {
    const { host, said } = results(THREE, { sort });
    const head = [...host.querySelectorAll<HTMLElement>("th button")].find((item) =>
      textOf(item).startsWith(title),
    );
    head?.click();
    return [textsOf(host, "tbody td.name"), said[0]];
  };
  expect(press("metric:val/iou")).toEqual([["job c", "job a", "job b"], { sort: "" }]);
  expect(press("-metric:val/iou")).toEqual([["job b", "job a", "job c"], { sort: "metric:val/iou" }]);
  expect(press("")).toEqual([["job a", "job b", "job c"], { sort: "-metric:val/iou" }]);
  expect(press("", "job")).toEqual([["job a", "job b", "job c"], { sort: "name" }]);
});

test("a row moves by the arrow keys of its handle, from where it is seen", () => {
  const { host, said } = results(THREE, { sort: "-metric:val/iou" });
  const handle = host.querySelector("[aria-label^='Move job a']");
  handle?.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowUp", bubbles: true, cancelable: true }));
  expect(said).toEqual([{ sort: "" }, ["a", "b", "c"]]);
});

test("metrics of the table are chosen by name", () => {
  const { host, said } = results([compared("a", { metrics: { loss: 1, "val/iou": 1 } })], {
    metrics: ["loss"],
  });
  const boxes = [...host.querySelectorAll<HTMLInputElement>("details input[type=checkbox]")];
  expect(boxes.map((box) => box.checked)).toEqual([false, true]);
  boxes[0]?.click();
  click(host, "Reset");
  expect(said).toEqual([{ metrics: ["loss", "val/iou"] }, { metrics: null }]);
});

test("specs show where they differ, and all of it when asked", () => {
  const jobs = [
    compared("a"),
    compared("b", { spec: { config: { lr: 0.2 }, trainer: "x", checkpoint: { monitor: "val/loss" } } }),
  ];
  const host = show(SpecDiff, { jobs });
  expect(textsOf(host, "tbody th, tbody td")).toEqual(["config.lr", "0.1", "0.2"]);
  host.querySelector<HTMLInputElement>("input")?.click();
  flushSync();
  expect(textsOf(host, "tbody th")).toEqual(["checkpoint.monitor", "config.lr", "trainer"]);
  expect(textOf(show(SpecDiff, { jobs: [compared("a"), compared("b")] }))).toContain("the same spec");
});
