import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { JobView, MediaView } from "../../api/wire";
import type { LiveEvent } from "../../live/events";
import { live } from "../../live/live.svelte";
import { answered, item, picture, seeAll } from "../../media/testing";
import { setQuery } from "../../router.svelte";
import { session } from "../../shell/session.svelte";
import { removeAll, serve, settled, show, signIn, textOf, textsOf, type Asked } from "../../testing";
import type { Compared } from "./compared";
import Samples from "./Samples.svelte";

let all: Record<string, MediaView[]>;
let asked: readonly Asked[];
let tell: (event: LiveEvent) => void;

beforeEach(() => {
  vi.useFakeTimers();
  seeAll();
  vi.spyOn(live, "watch").mockImplementation((_, listener) => {
    tell = listener;
    return () => undefined;
  });
  asked = serve(({ path, query }) =>
    path.endsWith("/media") ? answered(all[path.split("/")[2] ?? ""] ?? [], query) : new Blob(["png"]),
  );
});

afterEach(async () => {
  await removeAll();
  setQuery({ media: null, step: null });
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function compared(id: string): Compared {
  const view = { id, name: `job ${id}`, position: 1, finished_at: null } as unknown as JobView;
  return { id, view, colour: { slot: 1, dash: [] }, devices: "" };
}

async function rested(): Promise<void> {
  for (let i = 0; i < 3; i++) {
    await vi.advanceTimersByTimeAsync(1_100);
    await settled();
  }
}

function overlay(step: number, number = 0): MediaView {
  const caption = `${step}.${number}`;
  return item("val/overlays", "overlay", step, { number, caption, parts: { image: picture() } });
}

test("what a text goes on from stands before it, with its spaces", async () => {
  const data = { text: "  def f():\n\tpass" };
  all = { a: [item("samples", "text", 10, { caption: "<|user|>\n  write f", data })] };
  const host = show(Samples, { jobs: [compared("a")] });
  await rested();
  const sample = host.querySelector(".sample");
  expect([...(sample?.children ?? [])].map(({ tagName }) => tagName)).toEqual(["P", "PRE", "BUTTON"]);
  expect([sample?.querySelector("p")?.textContent, sample?.querySelector("pre")?.textContent]).toEqual([
    "<|user|>\n  write f",
    "  def f():\n\tpass",
  ]);
});

test("what is expected stands below what was generated, as text", async () => {
  const data = { text: "a <b>cat</b>", expected: "a <i>dog</i>" };
  all = { a: [item("samples", "text", 10, { caption: "I have", data })] };
  const host = show(Samples, { jobs: [compared("a")] });
  await rested();
  expect(textsOf(host, ".sample > *")).toEqual(["I have", "a <b>cat</b>", "Expected", "a <i>dog</i>", ""]);
});

test("each job has a column with its newest samples that are not above the step, and says which", async () => {
  all = {
    a: [overlay(10), overlay(10, 1), overlay(20), overlay(20, 1)],
    b: [overlay(15), ...[0, 1, 2, 3].map((number) => overlay(5, number))],
    c: [overlay(30)],
    d: [item("val/text", "text", 10, { data: { text: "x" } })],
  };
  setQuery({ step: "20" });
  const host = show(Samples, { jobs: ["a", "b", "c", "d"].map(compared) });
  await rested();
  expect(textOf(host.querySelector("output"))).toBe("step 20");
  expect(textsOf(host, "section header")).toEqual(["job a", "job b step 15", "job c from step 30 on"]);
  expect([...host.querySelectorAll("section")].map((column) => textsOf(column, ".sample"))).toEqual([
    ["20.0", "20.1"],
    ["15.0", "—"],
    ["", ""],
  ]);
  expect(textOf(host)).toContain("Without it: job d.");
  expect(textsOf(host, "option")).toContain("val/overlays (3 of 4 jobs)");
});

test("another key is chosen by the address, and generated texts are shown as they are", async () => {
  all = {
    a: [overlay(1), item("val/text", "text", 10, { data: { text: "<i>once</i>" } })],
    b: [item("val/text", "text", 10, { data: { text: "twice" } })],
  };
  setQuery({ media: "text:val/text" });
  const host = show(Samples, { jobs: ["a", "b"].map(compared) });
  await rested();
  expect([textsOf(host, "pre"), host.querySelector("i")]).toEqual([["<i>once</i>", "twice"], null]);
});

test("of a long text the beginning is shown", async () => {
  all = { a: [item("val/text", "text", 10, { data: { text: "x".repeat(100_000) } })] };
  const host = show(Samples, { jobs: [compared("a")] });
  await rested();
  expect(textOf(host.querySelector("pre"))).toHaveLength(4_000);
});

test("what a job logs meanwhile appears, and jobs are not read anew for it", async () => {
  signIn("member", "jobs:read");
  if (session.me) session.me = { ...session.me, name: "viewer" }; // what is kept is no other test's
  all = { a: [overlay(10)], b: [overlay(10)] };
  const host = show(Samples, { jobs: ["a", "b"].map(compared) });
  await rested();
  const before = asked.length;
  all["a"] = [overlay(10), overlay(20)];
  const event = { type: "media", data: { key: "val/overlays", kind: "overlay", step: 20, count: 1 } };
  tell({
    kind: "items",
    items: { job_id: "a", position: 2, metrics: {}, logs: [], events: [event] },
  } as unknown as LiveEvent);
  await rested();
  expect(textsOf(host, ".caption")).toEqual(["20.0", "10.0"]);
  expect(asked.slice(before).filter(({ path }) => path.startsWith("v1/jobs/b/"))).toEqual([]);
});

test("jobs without samples take no room", async () => {
  all = {};
  const host = show(Samples, { jobs: [compared("a")] });
  await rested();
  flushSync();
  expect(textOf(host)).toBe("");
});

test("pictures are 96 pixels wide, and as wide as the slider says", async () => {
  signIn("member", "jobs:read");
  if (session.me) session.me = { ...session.me, name: "viewer" }; // what is kept is no other test's
  all = { a: [overlay(10)], b: [overlay(10)] };
  const host = show(Samples, { jobs: ["a", "b"].map(compared) });
  await rested();
  const columns = host.querySelector<HTMLElement>(".columns");
  expect(columns?.style.gridAutoColumns).toBe("96px");
  const slider = host.querySelector<HTMLInputElement>(".size input");
  if (!slider) throw new Error("there is no slider");
  slider.value = "192";
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  flushSync();
  expect(columns?.style.gridAutoColumns).toBe("192px");
});
