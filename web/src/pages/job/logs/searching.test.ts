import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { serve, settled, type Asked } from "../../../testing";
import { Searching } from "./searching.svelte";

beforeEach(() => void vi.useFakeTimers());

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

const match = (line: number): object => ({ line, text: `line ${line}`, spans: [] });

/** A log of pages of one match each: the next page begins behind the number in `next`. */
function answered(pages: Readonly<Record<string, string | null>>): readonly Asked[] {
  return serve(({ query }) => {
    const after = query.get("after") ?? "";
    if (!(after in pages)) return null;
    return { data: [match(Number(after) + 1)], last_line: 10, next: pages[after] };
  });
}

const after = (asked: readonly Asked[]): (string | null)[] => asked.map(({ query }) => query.get("after"));

test("a search reads page after page to the end of the log", async () => {
  const asked = answered({ "0": "4", "4": null });
  const searching = new Searching("job_a");
  searching.begin({ q: "loss" });
  expect(searching.isRunning).toBe(true);
  await settled();
  expect([after(asked), searching.isRunning]).toEqual([["0", "4"], false]);
  expect(searching.found.lines.map((line) => line.line)).toEqual([1, 5]);
  expect([searching.found.searched, searching.found.isWhole]).toEqual([10, true]);
});

test("another search forgets the one before, and nothing is searched for nothing", async () => {
  const asked = answered({ "0": null });
  const searching = new Searching("job_a");
  searching.begin({ q: "first" });
  searching.begin({ q: "second" });
  await settled();
  expect(searching.found.lines).toHaveLength(1);
  expect(asked.map(({ query }) => query.get("q"))).toEqual(["first", "second"]);
  searching.begin(null);
  await settled();
  expect([asked.length, searching.found.lines, searching.isRunning]).toEqual([2, [], false]);
});

test("a search that was stopped or has failed goes on where it was", async () => {
  const asked = answered({ "0": "4" });
  const searching = new Searching("job_a");
  searching.begin({ q: "loss" });
  await settled();
  expect([searching.failure, searching.found.searched]).toEqual(["There is none.", 4]);
  searching.goOn();
  searching.stop();
  await settled();
  expect([searching.isRunning, searching.found.searched]).toEqual([false, 4]);
  expect(after(asked)).toEqual(["0", "4", "4"]);
});

test("what the job writes later is searched once a second, behind the end", async () => {
  const asked = answered({ "0": null, "10": null });
  const searching = new Searching("job_a");
  searching.grew();
  searching.begin({ q: "loss" });
  await settled();
  for (let i = 0; i < 3; i++) searching.grew();
  expect(after(asked)).toEqual(["0"]);
  await vi.advanceTimersByTimeAsync(1000);
  await settled();
  expect([after(asked), searching.found.lines.length]).toEqual([["0", "10"], 2]);
  searching.grew();
  searching.stop();
  await vi.advanceTimersByTimeAsync(2000);
  expect(asked).toHaveLength(2);
});
