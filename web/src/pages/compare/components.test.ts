import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { JobSummary, JobView } from "../../api/wire";
import type { LiveEvent } from "../../live/events";
import { live } from "../../live/live.svelte";
import { setQuery } from "../../router.svelte";
import { click, removeAll, serve, settled, show, textOf, textsOf } from "../../testing";
import type { Compared } from "./compared";
import Compare from "./Compare.svelte";
import Picker from "./Picker.svelte";
import Results from "./Results.svelte";
import SpecDiff from "./SpecDiff.svelte";

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
    ...{ spec: { config: { lr: 0.1 }, trainer: "x" }, devices: [] },
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
  await vi.advanceTimersByTimeAsync(10);
  const reads = asked.map(({ path }) => path).filter((path) => path.startsWith("v1/jobs/"));
  expect(reads.toSorted()).toEqual([
    ...["v1/jobs/a", "v1/jobs/a/attempts", "v1/jobs/b", "v1/jobs/b/attempts", "v1/jobs/c"],
  ]);
  expect(textsOf(host, "tbody td.name")).toEqual(["job a", "job b"]);
  expect(textsOf(host, "tbody td:nth-last-child(2)")).toEqual(["box:3", "box:3"]);
  expect(textOf(host)).toContain("c: There is none.");
  tell({ kind: "job", job: view("a", { version: 2, name: "renamed" }) as JobSummary });
  flushSync();
  expect(textsOf(host, "tbody td.name")).toEqual(["renamed", "job b"]);
  tell({ kind: "deleted", jobId: "a" });
  flushSync();
  expect(textsOf(host, "tbody td.name")).toEqual(["job b"]);
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

test("the table has values of each job, and a way to remove it", () => {
  const removed: string[] = [];
  const jobs = [
    compared("a", { metrics: { "val/iou": 0.5 }, started_at: new Date().toISOString() }),
    compared("b", { best: { metric: "val/iou", value: 0.25 } }),
  ];
  const host = show(Results, { jobs, remove: (id) => removed.push(id) });
  expect(textsOf(host, "th.number")).toEqual(["best", "val/iou", "ran for"]);
  expect(textsOf(host, "tbody tr:first-child td.number").slice(0, 2)).toEqual(["—", "0.5000"]);
  click(host.querySelector("tbody tr:last-child") ?? host, "✕");
  expect(removed).toEqual(["b"]);
});

test("specs show where they differ, and all of it when asked", () => {
  const jobs = [compared("a"), compared("b", { spec: { config: { lr: 0.2 }, trainer: "x" } })];
  const host = show(SpecDiff, { jobs });
  expect(textsOf(host, "tbody th, tbody td")).toEqual(["config.lr", "0.1", "0.2"]);
  host.querySelector<HTMLInputElement>("input")?.click();
  flushSync();
  expect(textsOf(host, "tbody th")).toEqual(["config.lr", "trainer"]);
  expect(textOf(show(SpecDiff, { jobs: [compared("a"), compared("b")] }))).toContain("the same spec");
});
