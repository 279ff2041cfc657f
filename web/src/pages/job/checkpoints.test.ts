import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { LiveEvent } from "../../live/events";
import { JobStore } from "../../live/job.svelte";
import { live } from "../../live/live.svelte";
import { click, removeAll, serve, settled, show, signIn, textOf, textsOf } from "../../testing";
import Checkpoints from "./Checkpoints.svelte";
import Confusion from "./Confusion.svelte";
import { AT, checkpoint, view } from "./testing";

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

/** Opens the menu of a row, and returns what it offers. */
async function offeredBy(host: HTMLElement, row: number): Promise<readonly string[]> {
  host.querySelectorAll("tbody tr")[row]?.querySelector<HTMLElement>('[aria-haspopup="menu"]')?.click();
  await settled();
  return textsOf(host.querySelectorAll("tbody tr")[row] ?? host, "[role=menuitem]");
}

test("checkpoints are listed with the monitored metric first, and again when there is a new one", async () => {
  let all = [checkpoint(1, { aliases: ["best"], metrics: { "val/iou": 0.5, "val/loss": 1, lr: 1 } })];
  const asked = serve(({ path }) => ({ data: path === "v1/jobs" ? [] : all, has_more: false }));
  const host = show(Checkpoints, { job: view({ spec: { checkpoint: { monitor: "val/iou" } } }) });
  await settled();
  expect(textsOf(host, "thead th").slice(3, -5)).toEqual(["val/iou", "val/loss"]);
  expect(textOf(host.querySelector("tr.best td"))).toBe("best");
  all = [checkpoint(2), ...all];
  const event = { seq: 9, time: AT, type: "checkpoint", attempt: 1, data: {} };
  tell({
    kind: "items",
    items: { job_id: "job_a", position: 9, metrics: {}, logs: [], events: [event] },
  } as unknown as LiveEvent);
  await settled();
  const read = asked.filter(({ path }) => path.endsWith("/checkpoints"));
  expect([read.length, host.querySelectorAll("tbody tr").length]).toEqual([2, 2]);
});

test("a checkpoint that was evaluated again shows both values", async () => {
  const again = { metrics: { "val/iou": 0.25, "val/other": 3 } };
  const all = [checkpoint(2), checkpoint(1, { metrics: { "val/iou": 0.5 }, remeasured: again })];
  serve(() => ({ data: all, has_more: false }));
  const host = show(Checkpoints, { job: view({ spec: { checkpoint: { monitor: "val/iou" } } }) });
  await settled();
  expect(textsOf(host, ".again")).toEqual(["re-evaluated 0.25"]);
});

test("captured checkpoints show the file or the folder that the script wrote, and no step 0", async () => {
  const captured = { source: "captured", epoch: null, step: 0 };
  const all = [
    checkpoint(3, { ...captured, folder: { path: "out/checkpoint-500" } }),
    checkpoint(2, { ...captured, step: 40, files: [{ path: "out/last.pt" }] }),
    checkpoint(1, { source: "run" }),
  ];
  serve(() => ({ data: all, has_more: false }));
  const host = show(Checkpoints, { job: view() });
  await settled();
  expect(textsOf(host, '[data-column="file"]')).toEqual(["out/checkpoint-500/", "out/last.pt", "—"]);
  expect(textsOf(host, '[data-column="step"]')).toEqual(["—", "40", "100"]);
});

test("a checkpoint that is not whole says so, and no job is retried from it", async () => {
  const all = [checkpoint(2, { damaged: true }), checkpoint(1, { aliases: ["latest"] })];
  serve(() => ({ data: all, has_more: false }));
  signIn("member", "jobs:write");
  const host = show(Checkpoints, { job: view({ state: "failed", finished_at: AT }) });
  await settled();
  expect(textsOf(host, "tbody td:first-child")).toEqual(["incomplete", "latest"]);
  expect(host.querySelectorAll("tr.damaged")).toHaveLength(1);
  expect([await offeredBy(host, 0), await offeredBy(host, 1)]).toEqual([
    ["Save as model", "Copy id", "Copy sha256"],
    ["Save as model", "Retry from here", "Copy id", "Copy sha256"],
  ]);
});

test("a job that has ended is retried from a checkpoint, by who may", async () => {
  const all = [checkpoint(2), checkpoint(1)];
  const asked = serve(({ method }) =>
    method === "POST" ? view({ id: "job_b" }) : { data: all, has_more: false },
  );
  const job = view({ state: "succeeded", finished_at: AT });
  const reader = show(Checkpoints, { job });
  await settled();
  expect(await offeredBy(reader, 1)).toEqual(["Copy id", "Copy sha256"]);
  signIn("member", "jobs:write");
  const host = show(Checkpoints, { job });
  await settled();
  await offeredBy(host, 1);
  click(host, "Retry from here");
  await settled();
  expect(asked.at(-1)).toMatchObject({ path: "v1/jobs/job_a/retry", body: { from: "ckpt_1" } });
  expect(location.pathname).toMatch(/jobs\/job_b$/);
});

test("a job without a checkpoint says how one comes about, and a failure what it is", async () => {
  let answer: unknown = { data: [], has_more: false };
  serve(() => answer);
  const none = show(Checkpoints, { job: view() });
  await settled();
  expect(textOf(none)).toContain("run.save_checkpoint(…)");
  answer = null;
  const refused = show(Checkpoints, { job: view() });
  await settled();
  expect(textOf(refused.querySelector("[role=alert]"))).toContain(
    "The checkpoints cannot be read. There is none.",
  );
});

test("a checkpoint is kept as a version of a model, under the name of the job or another", async () => {
  signIn("member", "jobs:read", "jobs:write");
  let answer: unknown = null;
  const asked = serve(({ path }) =>
    path === "v1/models" ? answer : { data: [checkpoint(1, { id: "ckpt_7" })], has_more: false },
  );
  const host = show(Checkpoints, { job: view() });
  await settled();
  await offeredBy(host, 0);
  click(host, "Save as model");
  flushSync();
  const field = host.querySelector<HTMLInputElement>("dialog input");
  expect(field?.value).toBe("unet");
  click(host, "Save");
  await settled();
  expect(asked.at(-1)?.body).toEqual({ name: "unet", from: "job_a/ckpt_7" });
  expect(textOf(host.querySelector("dialog [role=alert]"))).toBe("There is none.");
  answer = { name: "unet", version: 2 };
  click(host, "Save");
  await settled();
  expect([textOf(host.querySelector("a[href$=models]")), host.querySelector("dialog[open]")]).toEqual([
    "unet@2",
    null,
  ]);
});

test("who may not write keeps nothing", async () => {
  signIn("viewer", "jobs:read");
  serve(() => ({ data: [checkpoint(1)], has_more: false }));
  const host = show(Checkpoints, { job: view() });
  await settled();
  expect(await offeredBy(host, 0)).toEqual(["Copy id", "Copy sha256"]);
});

test("the confusion matrix of the newest checkpoint names what is confused most often", async () => {
  let matrix: unknown = { classes: ["crack", "wall"], matrix: [[8, 2], [5, 85]], iou: [0.5, null] }; // prettier-ignore
  serve(() => matrix);
  const host = show(Confusion, { jobId: "job_a", checkpoint: checkpoint(3) });
  await settled();
  expect(textOf(host)).toContain("Confused most often: wall as crack (5), crack as wall (2).");
  matrix = { classes: "no list" };
  const broken = show(Confusion, { jobId: "job_a", checkpoint: checkpoint(3, { epoch: null }) });
  await settled();
  expect(textOf(broken)).toBe("Confusion matrix of step 300");
});

test("files of a checkpoint are read once, however often the job's page hears of the job", async () => {
  const files = [{ path: "confusion.json", size: 10, sha256: "" }];
  const asked = serve(({ path }) => {
    if (path.endsWith("/attempts") || path === "v1/jobs") return { data: [], has_more: false };
    if (path.endsWith("/checkpoints")) return { data: [checkpoint(1, { files })], has_more: false };
    return { classes: [], matrix: [] };
  });
  const store = new JobStore("job_a");
  store.take(view());
  show(Checkpoints, {
    get job() {
      return store.job ?? view();
    },
  });
  await settled();
  for (let position = 2; position < 5; position++) {
    store.take(view({ position }));
    await settled();
  }
  const read = asked.map(({ path }) => path.split("/").at(-1)).filter((name) => name !== "attempts");
  expect(read.toSorted()).toEqual(["checkpoints", "confusion.json"]);
});
