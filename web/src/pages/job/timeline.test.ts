import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { LiveEvent } from "../../live/events";
import { live } from "../../live/live.svelte";
import { click, removeAll, serve, settled, show, textOf, textsOf } from "../../testing";
import Timeline from "./Timeline.svelte";
import { AT, attempt, ofTwoNodes, view } from "./testing";

let tell: (event: LiveEvent) => void;

beforeEach(() => {
  vi.spyOn(live, "watch").mockImplementation((_, listener) => {
    tell = listener;
    return () => undefined;
  });
});

afterEach(async () => {
  await removeAll();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

type Event = Readonly<Record<string, unknown>>;

const event = (seq: number, type: string, data: Event): Event => ({ seq, time: AT, type, attempt: 1, data });
const state = (seq: number, from: string | null, to: string, more: Event = {}): Event =>
  event(seq, "state", { from, to, ...more });
const saved = (seq: number, epoch: number | null, step = 10 * seq): Event =>
  event(seq, "checkpoint", { epoch, step });

function hear(...events: readonly Event[]): void {
  const items = { job_id: "job_a", position: 9, metrics: {}, logs: [], events };
  tell({ kind: "items", items } as unknown as LiveEvent);
  flushSync();
}

async function opened(events: readonly Event[], attempts = [attempt(1)]): Promise<HTMLElement> {
  serve(() => ({ data: events, has_more: false }));
  const host = show(Timeline, { job: view(), attempts });
  await settled();
  return host;
}

const sentences = (host: HTMLElement): readonly string[] => textsOf(host, "ol li .sentence");

test("the timeline has a bar for each attempt and events, both newest first; live ones come once", async () => {
  const failed = state(2, "running", "failed", { reason: "hang" });
  const attempts = [attempt(1, { ended_at: AT, end_reason: "hang" }), attempt(2, { start_step: 1710 })];
  const host = await opened([state(1, null, "queued"), failed], attempts);
  for (let i = 0; i < 2; i++) hear(failed, saved(3, 2));
  expect(sentences(host)).toEqual([
    "checkpoint: epoch 2, step 30",
    "running → failed: hang",
    "submitted → queued",
  ]);
  expect(textsOf(host, "tbody td:nth-child(2)")).toEqual(["runs", "hang"]);
  expect(textsOf(host, "tbody td:nth-child(4)")).toEqual(["1,710", "0"]);
  expect([...host.querySelectorAll("rect")].map((bar) => bar.getAttribute("class")?.split(" ")[0])).toEqual([
    "open",
    "hang",
  ]);
});

test("a checkpoint that the program wrote by itself is named by its file, also in a row of them", async () => {
  const written = (seq: number, file: string, step = 0): Event =>
    event(seq, "checkpoint", { epoch: null, step, file });
  const start = state(1, "starting", "running");
  const two = await opened([start, written(2, "out/best.pt"), written(3, "out/checkpoint-5/", 5)]);
  expect(sentences(two).slice(0, 2)).toEqual([
    "checkpoint: out/checkpoint-5/, step 5",
    "checkpoint: out/best.pt",
  ]);
  const many = await opened([start, ...[2, 3, 4].map((seq) => written(seq, `out/${seq}.pt`))]);
  expect(sentences(many)[0]).toBe("3 checkpoints");
});

test("checkpoints in a row are one line, which one may unfold, and which grows", async () => {
  const host = await opened([
    ...[state(1, "starting", "running"), saved(2, 3), saved(3, 4), saved(4, 5)],
    ...[event(5, "media", { key: "val/masks", kind: "overlay", step: 40, count: 4 }), saved(6, 6)],
    ...[event(7, "message", { level: "info", text: "halfway" }), saved(8, null), saved(9, null)],
  ]);
  expect(sentences(host)).toEqual([
    ...["checkpoint: step 90", "checkpoint: step 80", "halfway", "4 checkpoints, epochs 3 to 6"],
    "starting → running",
  ]);
  click(host, "show");
  expect(sentences(host).slice(3, 6)).toEqual([
    ...["4 checkpoints, epochs 3 to 6", "checkpoint: epoch 6, step 60", "checkpoint: epoch 5, step 40"],
  ]);
  click(host, "hide");
  hear(saved(10, null));
  expect(sentences(host)[0]).toBe("3 checkpoints, steps 80 to 100");
});

test("events say who asked for them, in place of the owner", async () => {
  const host = await opened([
    state(1, "queued", "paused", { by: "eve", reason: { message: "paused by its owner" } }),
    state(2, "paused", "queued", { by: "eve", reason: { message: "waits for a worker" } }),
    event(3, "message", {
      by: "eve",
      text: "cancel requested: may save a checkpoint before it stops",
    }),
    event(4, "message", { by: "eve", text: "the pause was withdrawn" }),
    state(5, "running", "cancelled", { reason: { message: "cancelled by its owner" } }),
  ]);
  expect(sentences(host).toReversed()).toEqual([
    "queued → paused by eve",
    "paused → queued by eve: waits for a worker",
    "cancel requested by eve: may save a checkpoint before it stops",
    "the pause was withdrawn by eve",
    "running → cancelled: cancelled by its owner",
  ]);
});

test("a preempted attempt leads to the job that took its place, if one may read it", async () => {
  const ended = (other: unknown) => attempt(1, { ended_at: AT, end_reason: "preempted", stopped_for: other });
  const host = await opened(
    [],
    [
      ended({ owner: "eve", job_id: "job_b", name: "high" }),
      ended({ owner: "eve", job_id: null, name: null }),
      ended(null),
    ].map((one, index) => ({ ...one, number: index + 1 })),
  );
  expect(textsOf(host, "tbody td:nth-child(2)")).toEqual([
    ...["preempted", "preempted for a job of eve", "preempted for high of eve"],
  ]);
  expect(host.querySelector("tbody a")?.getAttribute("href")).toBe("/jobs/job_b");
});

test("long timelines are read page by page", async () => {
  const asked = serve(({ query }) => {
    const after = Number(query.get("after") ?? 0);
    return { data: [state(after + 1, "a", "b"), state(after + 2, "b", "c")], has_more: after < 4 };
  });
  const host = show(Timeline, { job: view(), attempts: [] });
  await settled();
  expect(asked.map(({ query }) => query.get("after"))).toEqual([null, "2", "4"]);
  expect(sentences(host)).toHaveLength(6);
});

test("the attempts of a job in a pool have a table of its nodes, with their ranks", async () => {
  serve(() => ({ data: [], has_more: false, next: null }));
  const attempts = [attempt(1, { worker: "gpu" })];
  const host = show(Timeline, { job: ofTwoNodes(), attempts });
  await settled();
  const rows = [...host.querySelectorAll("table:last-of-type tbody tr")].slice(attempts.length);
  expect(rows.map((row) => textsOf(row, "td"))).toEqual([
    ["n1", "0–1", "A100 0, A100 1"],
    ["n2", "2–3", "A100 0, A100 1"],
  ]);
  expect(textOf(show(Timeline, { job: view(), attempts }))).not.toContain("Nodes");
});
