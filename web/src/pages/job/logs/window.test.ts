import { expect, test } from "vitest";
import type { LogLine } from "../../../api/wire";
import { LogWindow, MOST_LINES, type ReadPage } from "./window";

const line = (number: number): LogLine => ({
  line: number,
  time: "2026-01-01T00:00:00Z",
  attempt: 1,
  rank: 0,
  stream: "stdout",
  text: `line ${number}`,
});

/** A log of `total` lines, as the service answers it. */
function log(total: number): ReadPage {
  return ({ after, before, limit }) => {
    const first = after === undefined ? Math.max(Math.min(before ?? 0, total + 1) - limit, 1) : after + 1;
    const last = after === undefined ? Math.min((before ?? 0) - 1, total) : Math.min(after + limit, total);
    const lines = Array.from({ length: Math.max(last - first + 1, 0) }, (_, index) => line(first + index));
    return Promise.resolve({ lines, total });
  };
}

test("a jump reads the lines around the place, and nothing else", async () => {
  const window = new LogWindow(log(1_000_000));
  await window.showAround(900_000);
  expect(window.lines[window.indexOf(900_000)]?.line).toBe(900_000);
  expect(window.lines).toHaveLength(1000);
  expect([window.begins, window.ends]).toEqual([false, false]);
});

test("extending leaves no gap and keeps a bounded number of lines", async () => {
  const window = new LogWindow(log(100_000));
  await window.showAround(1);
  for (let page = 0; page < 60; page += 1) await window.extendDown();
  expect(window.lines).toHaveLength(MOST_LINES);
  const first = window.lines[0]?.line ?? 0;
  expect(window.lines.every((held, index) => held.line === first + index)).toBe(true);
  expect(window.begins).toBe(false);
  await window.extendUp();
  expect(window.lines[0]?.line).toBe(first - 500);
  expect(window.ends).toBe(false);
});

test("live lines are added once, and only at the end", async () => {
  const window = new LogWindow(log(10));
  await window.showEnd();
  window.addLive([line(10), line(11)]);
  expect(window.lines.map((held) => held.line).slice(-2)).toEqual([10, 11]);
  const middle = new LogWindow(log(5000));
  await middle.showAround(100);
  middle.addLive([line(5001)]);
  expect(middle.lines.at(-1)?.line).toBe(599);
  expect(middle.total).toBe(5001);
});

test("who reads further up keeps the lines, however many come", async () => {
  const window = new LogWindow(log(MOST_LINES));
  await window.showAround(1);
  while (!window.ends) await window.extendDown();
  expect(window.addLive([line(MOST_LINES + 1)], true)).toBe(0);
  expect([window.lines[0]?.line, window.lines.length, window.ends]).toEqual([1, MOST_LINES, false]);
  expect(window.total).toBe(MOST_LINES + 1);
});

test("lines that come live while a page is read are not lost", async () => {
  const answers: (() => void)[] = [];
  const read = log(10);
  const window = new LogWindow(async (place) => {
    const page = await read(place);
    await new Promise<void>((go) => answers.push(go));
    return page;
  });
  const shown = window.showEnd();
  window.addLive([line(11)]);
  await expect.poll(() => answers.length).toBe(1);
  answers[0]?.();
  await shown;
  const caught = window.catchUp();
  window.addLive([line(12)]);
  await expect.poll(() => answers.length).toBe(2);
  answers[1]?.();
  await caught;
  expect(window.lines.map((held) => held.line)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
});

test("after a page that could not be read, live lines are still added", async () => {
  let isDown = false;
  const read = log(10);
  const window = new LogWindow((place) => (isDown ? Promise.reject(new Error("down")) : read(place)));
  await window.showEnd();
  isDown = true;
  await expect(window.catchUp()).rejects.toThrow("down");
  window.addLive([line(11)]);
  expect(window.lines.at(-1)?.line).toBe(11);
});
