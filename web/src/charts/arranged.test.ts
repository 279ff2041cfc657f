/** The charts of a page: what is in which section, and where it is kept. */
import { createRawSnippet, flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { href, navigate } from "../router.svelte";
import { click, removeAll, serve, settled, show, signIn, textsOf, type Asked } from "../testing";
import { session } from "../shell/session.svelte";
import Charts from "./Charts.svelte";
import { keys } from "./testing";

/** Takes all that is drawn: there is no canvas here. */
const PAPER = new Proxy({}, { get: () => () => ({ width: 0 }), set: () => true });

const KEYS = ["train/loss", "val/loss", "lr", "time/step"];
let asked: readonly Asked[];
let visitors = 0;

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockReturnValue(PAPER as CanvasRenderingContext2D);
  vi.stubGlobal(
    "IntersectionObserver",
    class {
      observe(): void {}
      disconnect(): void {}
    },
  );
  signIn("member", "jobs:read");
  if (session.me) session.me = { ...session.me, name: `user ${(visitors += 1)}` }; // each with preferences of its own
  asked = serve(({ path, method }) => {
    if (path === "v1/metrics") return { jobs: keys({ job_a: KEYS }), series: [], max_points: 1500 };
    return method === "GET" ? { preferences: { runs: 1 } } : {};
  });
});

afterEach(async () => {
  await vi.advanceTimersByTimeAsync(2000);
  await removeAll();
  navigate(href(""));
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

async function open(query = "", ...others: readonly string[]): Promise<HTMLElement> {
  navigate(href("") + query);
  const host = show(Charts, {
    jobs: ["job_a", ...others].map((id) => ({
      ...{ id, name: id, perEpoch: null, attempts: [], monitor: "val/loss" },
    })),
    readAttempts: () => Promise.resolve(),
    empty: createRawSnippet(() => ({ render: () => "<p></p>" })),
  });
  await settled();
  return host;
}

test("what one of two jobs has is shown at once where they share nothing, and else by a button", async () => {
  const more = (host: HTMLElement): readonly string[] =>
    textsOf(host, "button").filter((text) => text.startsWith("Show "));
  const alone = await open("", "job_b");
  expect([alone.querySelectorAll("figure").length > 0, more(alone)]).toEqual([true, []]);
  await removeAll();
  serve(({ path }) =>
    path === "v1/metrics"
      ? { jobs: keys({ job_a: KEYS, job_b: ["lr"] }), series: [], max_points: 1500 }
      : { preferences: { runs: 1 } },
  );
  const both = await open("", "job_b");
  expect([both.querySelectorAll("figure").length, more(both)]).toEqual([1, ["Show 3 more keys of one job"]]);
});

async function choose(host: HTMLElement, chart: string, item: string): Promise<void> {
  host.querySelector<HTMLElement>(`[aria-label="Actions of ${chart}"]`)?.click();
  await vi.dynamicImportSettled();
  await settled();
  const menu = host.querySelector("[role=menu]");
  if (!menu) throw new Error(`${chart} has no menu`);
  click(menu, item);
  await settled();
}

const headings = (host: HTMLElement): readonly string[] => textsOf(host, "h2");
const charts = (host: HTMLElement): readonly (string | null)[] =>
  [...host.querySelectorAll("figure")].map((figure) => figure.getAttribute("aria-label"));

test("the monitored chart is first and wide, and a chart has one tab stop", async () => {
  const host = await open();
  expect([headings(host), charts(host)]).toEqual([
    ["Monitored metric 1", "other 1", "time 1"],
    ["loss", "lr", "time/step"],
  ]);
  expect(host.querySelectorAll("figure.wide")).toHaveLength(1);
  for (const figure of host.querySelectorAll("figure"))
    expect(figure.querySelectorAll("button, [tabindex='0']")).toHaveLength(1);
});

test("one chart of a section has its width, two share it, and the wide one counts for none", async () => {
  const host = await open("?pinned=time/step");
  const shares = (): readonly (string | undefined)[] =>
    [...host.querySelectorAll(".grid")].map((grid) =>
      ["one", "two"].find((name) => grid.classList.contains(name)),
    );
  expect([headings(host), shares()]).toEqual([
    ["Monitored metric · Pinned 2", "other 1"],
    ["one", "one"],
  ]);
  await choose(host, "lr", "Pin to the top");
  await choose(host, "loss", "Wide");
  expect([headings(host), shares()]).toEqual([["Monitored metric · Pinned 3"], [undefined]]);
  await choose(host, "loss", "Wide");
  expect(shares()).toEqual(["two"]);
});

test("what is folded, pinned, split and moved is kept for the user, and the address says it", async () => {
  const host = await open();
  await choose(host, "time/step", "Pin to the top");
  await choose(host, "loss", "Split training and validation");
  await choose(host, "lr", "Section down");
  click(host, "other 1");
  await settled();
  expect(headings(host)).toEqual(["Monitored metric · Pinned 2", "train 1", "other 1"]);
  expect(charts(host)).toEqual(["val/loss", "time/step", "train/loss"]);
  const query = new URLSearchParams(location.search);
  expect(Object.fromEntries(query)).toEqual({
    ...{ pinned: "time/step", split: "train/loss,val/loss", folded: "other", sections: "train,other" },
  });
  await vi.advanceTimersByTimeAsync(1500);
  const kept = asked.find(({ method }) => method === "PATCH")?.body;
  expect(kept).toMatchObject({
    preferences: { charts: { folded: ["other"], pinned: ["time/step"], order: ["train", "other"] } },
  });
  await choose(host, "val/loss", "Split training and validation");
  expect(charts(host)).toEqual(["loss", "time/step"]);
});

test("another visit is as it was kept, and its address says so; the address wins", async () => {
  const first = await open();
  click(first, "time 1");
  await settled();
  const second = await open();
  expect([location.search, charts(second)]).toEqual(["?folded=time", ["loss", "lr"]]);
  const third = await open("?folded=other");
  expect(charts(third)).toEqual(["loss", "time/step"]);
});

test("plus, minus and zero zoom all charts", async () => {
  await open();
  const { pressed } = await import("../shell/shortcuts");
  const press = (key: string): string | null => {
    pressed(new KeyboardEvent("keydown", { key }));
    flushSync();
    return new URLSearchParams(location.search).get("zoom");
  };
  expect(["+", "+", "-", "0"].map(press)).toEqual(["0.25~0.75", "0.375~0.625", "0.25~0.75", null]);
});
