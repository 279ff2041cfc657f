import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { LogLine } from "../../../api/wire";
import { click, removeAll, serve, settled, show, textOf, textsOf } from "../../../testing";
import { ofTwoNodes, view } from "../testing";
import { readAddress } from "./address";
import Bar from "./Bar.svelte";
import Copy from "./Copy.svelte";
import Line from "./Line.svelte";
import { NOTHING, type Found } from "./search";
import { Searching } from "./searching.svelte";

beforeEach(() => void vi.useFakeTimers());

afterEach(async () => {
  await removeAll();
  vi.useRealTimers();
  history.replaceState(null, "", "/");
});

function line(text: string, changes: Partial<LogLine> = {}): LogLine {
  const time = "2026-01-01T00:00:00Z";
  return { line: 7, time, attempt: 1, rank: 0, stream: "stdout", text, ...changes };
}

test("a line has its number, its rank and its colours, and marks what is searched", () => {
  const chosen: number[] = [];
  const props = {
    chosen: false,
    query: "loss",
    spans: [],
    wraps: false,
    onchoose: (number: number) => chosen.push(number),
  };
  const host = show(Line, { ...props, line: line("\x1b[31mloss\x1b[0m 0.5") });
  expect(textOf(host.querySelector(".text"))).toBe("loss 0.5");
  expect(textOf(host.querySelector(".hit.red"))).toBe("loss");
  expect(textsOf(host, "span.place")).toEqual(["r0"]);
  click(host, "7");
  expect(chosen).toEqual([7]);
});

test("a line of the launcher has no rank, and one of stderr and the chosen one are marked", () => {
  const props = { query: "", wraps: false, onchoose: () => undefined };
  const changes = { rank: null, stream: "stderr" } as const;
  const host = show(Line, { ...props, chosen: true, spans: [[0, 2]], line: line("no torch", changes) });
  expect(host.querySelector(".line.chosen.stderr")).not.toBeNull();
  expect(textsOf(host, "span.place")).toEqual(["—"]);
  expect(textsOf(host, ".hit")).toEqual(["no"]);
});

test("a line has one time: its own, or else that of its arrival", () => {
  const props = { chosen: false, query: "", spans: [], wraps: false, onchoose: () => undefined };
  const times = (text: string): number =>
    show(Line, { ...props, line: line(text) }).querySelectorAll("time").length;
  expect(times("epoch 1 of 2")).toBe(1);
  expect(times("\x1b[2m2026-01-01 00:00:00,123\x1b[0m epoch 1")).toBe(0);
  expect(times("I0101 00:00:00.123456 42 init.cc] starts")).toBe(0);
  expect(times("[12:03:07] epoch 1")).toBe(0);
  expect(times("12:3 is a ratio")).toBe(1);
});

test("with Shift, a line's number chooses all lines from the chosen one to it", () => {
  const chosen: [number, boolean][] = [];
  const onchoose = (number: number, extend: boolean): void => void chosen.push([number, extend]);
  const host = show(Line, { chosen: true, query: "", spans: [], wraps: false, onchoose, line: line("x") });
  const number = host.querySelector("button");
  number?.dispatchEvent(new MouseEvent("click", { bubbles: true, shiftKey: true }));
  number?.click();
  expect(chosen).toEqual([
    [7, true],
    [7, false],
  ]);
  expect(host.querySelector("[aria-current=true]")).not.toBeNull();
});

test("the text of the chosen lines is copied, without numbers, times and colours", async () => {
  const copied: string[] = [];
  vi.spyOn(navigator.clipboard, "writeText").mockImplementation((text) => {
    copied.push(text);
    return Promise.resolve();
  });
  const asked = serve(() => ({
    data: [7, 8, 9, 10].map((number) => line(`\x1b[31mtext ${number}\x1b[0m`, { line: number })),
  }));
  const host = show(Copy, { jobId: "job_a", from: 7, to: 9, filter: { rank: "0" } });
  click(host, "Copy lines 7–9");
  await settled();
  expect(copied).toEqual(["text 7\ntext 8\ntext 9\n"]);
  expect([asked.length, asked[0]?.query.toString()]).toEqual([1, "rank=0&after=6&limit=1000"]);
  vi.unstubAllGlobals();
});

test("the bar wraps long lines, and the address says so", () => {
  const { host } = bar("");
  host.querySelectorAll<HTMLInputElement>("input[type=checkbox]")[1]?.click();
  flushSync();
  expect([location.search, readAddress(new URLSearchParams(location.search)).isWrapped]).toEqual([
    "?wrap=1",
    true,
  ]);
});

test("a line's text is never read as a page", () => {
  const props = { chosen: false, query: "", spans: [], wraps: false, onchoose: () => undefined };
  const host = show(Line, { ...props, line: line("<img src=x onerror=alert(1)>") });
  expect(host.querySelector("img")).toBeNull();
});

/** Shows the bar of a job with two ranks. `steps` is filled as one goes from match to match. */
function bar(
  query: string,
  found: Found = NOTHING,
  { attempt = 1, current = -1, steps = [] as number[] } = {},
) {
  history.replaceState(null, "", `/?${query}`);
  const searching = new Searching("job_a");
  searching.found = found;
  const host = show(Bar, {
    ...{ job: view({ attempt }), address: readAddress(new URLSearchParams(query)), searching, current },
    ...{ total: 400, step: (by: 1 | -1) => void steps.push(by) },
  });
  return { host, searching, steps };
}

test("the bar offers each rank and attempt, and puts the choice into the address", () => {
  const { host } = bar("rank=1", NOTHING, { attempt: 2 });
  expect(textsOf(host, ".ranks button")).toEqual(["all", "0", "1", "launcher"]);
  expect(textsOf(host, "[aria-pressed=true]")).toEqual(["1"]);
  expect(textsOf(host, "option")).toEqual(["all attempts", "attempt 1", "attempt 2"]);
  click(host, "launcher");
  expect(location.search).toBe("?rank=launcher");
  const select = host.querySelector("select");
  if (!select) throw new Error("no attempts");
  select.value = "2";
  select.dispatchEvent(new Event("change", { bubbles: true }));
  expect(location.search).toBe("?rank=launcher&attempt=2");
  expect(bar("").host.querySelector("select")).toBeNull();
});

test("with several nodes, the bar offers the ranks of each", () => {
  const job = ofTwoNodes({ attempt: 2 });
  const opened = (query: string): HTMLElement => {
    history.replaceState(null, "", `/?${query}`);
    const address = readAddress(new URLSearchParams(query));
    const searching = new Searching("job_a");
    return show(Bar, { job, address, searching, current: -1, total: 0, step: () => undefined });
  };
  const groups = (host: HTMLElement): (string | null)[] =>
    [...host.querySelectorAll("optgroup")].map((group) => group.getAttribute("label"));
  const host = opened("rank=3");
  const select = host.querySelector<HTMLSelectElement>("select[aria-label=Rank]");
  if (!select) throw new Error("no ranks");
  expect([select.value, groups(host)]).toEqual(["3", ["n1", "n2"]]);
  expect(textsOf(host, "optgroup:last-of-type option")).toEqual(["rank 2", "rank 3"]);
  select.value = "launcher";
  select.dispatchEvent(new Event("change", { bubbles: true }));
  expect(location.search).toBe("?rank=launcher");
  expect(groups(opened("attempt=1"))).toEqual(["node 0", "node 1"]);
});

test("the bar says how many matches there are, and in how much of the log", () => {
  const lines = [1, 2, 3].map((number) => ({ ...line("loss", { line: number }), spans: [] }));
  const count = ({ host }: { host: HTMLElement }): string => textOf(host.querySelector(".count"));
  expect(count(bar("q=loss", { lines, searched: 400, isWhole: true }, { current: 1 }))).toBe("2/3");
  expect(count(bar("q=loss", { lines, searched: 100, isWhole: false }))).toBe("3+ in 25% of the log");
  expect(bar("").host.querySelector(".count")).toBeNull();
});

test("the bar goes from match to match, and a search that waits goes on by its button", () => {
  const { host, searching, steps } = bar("q=loss");
  const goOn = vi.spyOn(searching, "goOn").mockReturnValue();
  click(host, "▲");
  host.querySelector("form")?.dispatchEvent(new Event("submit", { bubbles: true, cancelable: true }));
  expect(steps).toEqual([-1, 1]);
  click(host, "Continue");
  expect(goOn).toHaveBeenCalledOnce();
});

test("what is typed is searched once it rests, without the line that was chosen", async () => {
  const { host } = bar("line=5");
  const box = host.querySelector<HTMLInputElement>("input[type=search]");
  if (!box) throw new Error("no field");
  box.value = "loss";
  box.dispatchEvent(new Event("input", { bubbles: true }));
  flushSync();
  expect(location.search).toBe("?line=5");
  await vi.advanceTimersByTimeAsync(200);
  expect(location.search).toBe("?q=loss");
});
