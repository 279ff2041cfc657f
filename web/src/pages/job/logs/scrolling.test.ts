import { flushSync } from "svelte";
import { expect, test } from "vitest";
import { ApiError } from "../../../api/client";
import type { LogLine } from "../../../api/wire";
import { LogLines } from "./lines.svelte";
import { firstAt, heightOf, offsetOf, ROW } from "./scrollbar";
import { Scrolling } from "./scrolling.svelte";

const line = (number: number): LogLine => ({
  line: number,
  time: "2026-01-01T00:00:00Z",
  attempt: 1,
  rank: 0,
  stream: "stdout",
  text: `line ${number}`,
});

interface Log {
  readonly scrolling: Scrolling;
  readonly asked: Record<string, number>[];
  total: number;
  isDown: boolean;
}

/** A log of `total` lines, of which ten can be seen, and what is asked of the service. */
function open(total: number, matches: () => readonly LogLine[] | null = () => null): Log {
  const asked: Record<string, number>[] = [];
  const lines = new LogLines(({ after, before, limit }) => {
    asked.push({ ...(after === undefined ? { before: before ?? 0 } : { after }) });
    if (log.isDown) return Promise.reject(new ApiError(0, "unreachable", "down"));
    const first = after === undefined ? Math.max(Math.min(before ?? 0, log.total + 1) - limit, 1) : after + 1;
    const last =
      after === undefined ? Math.min((before ?? 0) - 1, log.total) : Math.min(after + limit, log.total);
    const found = Array.from({ length: Math.max(last - first + 1, 0) }, (_, index) => line(first + index));
    return Promise.resolve({ lines: found, total: log.total });
  });
  const scrolling = new Scrolling(lines, matches);
  scrolling.viewport = 10 * ROW;
  const log: Log = { scrolling, asked, total, isDown: false };
  return log;
}

function seen({ scrolling }: Log): [number, number] {
  const shown = scrolling.shown.slice(0, scrolling.rows);
  return [shown[0]?.line ?? 0, shown.at(-1)?.line ?? 0];
}

async function settled(): Promise<void> {
  for (let i = 0; i < 20; i++) await Promise.resolve();
  flushSync();
}

test("a log opens at its end, and follows it", async () => {
  const log = open(1000);
  await log.scrolling.toEnd();
  expect([seen(log), log.asked]).toEqual([[991, 1000], [{ before: Number.MAX_SAFE_INTEGER }]]);
  log.scrolling.grew([line(1001), line(1002)], 1002);
  expect([seen(log), log.scrolling.fresh]).toEqual([[993, 1002], 0]);
});

test("an empty log is read once, however often its view changes", async () => {
  const log = open(0);
  await log.scrolling.toEnd();
  log.scrolling.viewport = 20 * ROW;
  await log.scrolling.toEnd();
  expect(log.asked).toHaveLength(1);
  log.scrolling.grew([line(1)], 1);
  expect(seen(log)).toEqual([1, 1]);
});

test("who scrolls up keeps the place while lines come, which are counted, until the end is reached again", async () => {
  const log = open(1000);
  await log.scrolling.toEnd();
  log.scrolling.move(-5);
  log.scrolling.grew([line(1001)], 1001);
  log.scrolling.grew([line(1002), line(1003)], 1003);
  expect([seen(log), log.scrolling.isFollowing, log.scrolling.fresh]).toEqual([[986, 995], false, 3]);
  log.scrolling.move(100);
  expect([seen(log), log.scrolling.isFollowing, log.scrolling.fresh]).toEqual([[994, 1003], true, 0]);
});

test("near the first held line more are read, and the visible ones stay where they are", async () => {
  const log = open(1000);
  await log.scrolling.toEnd();
  log.scrolling.move(-450);
  expect(seen(log)).toEqual([541, 550]);
  await settled();
  expect([seen(log), log.asked.length]).toEqual([[541, 550], 2]);
  log.scrolling.move(-540);
  expect(seen(log)).toEqual([1, 10]);
});

test("where long lines wrap, the end is the lines that fit, and one goes on line by line", async () => {
  const log = open(1000);
  log.scrolling.columns = 10; // "12:00:00 " and "line 1000" take two rows
  await log.scrolling.toEnd();
  expect(log.scrolling.shown.slice(0, 5).map(({ line }) => line)).toEqual([996, 997, 998, 999, 1000]);
  log.scrolling.move(-3);
  expect([log.scrolling.shown[0]?.line, log.scrolling.isFollowing]).toEqual([993, false]);
  log.scrolling.move(2);
  expect(log.scrolling.isFollowing).toBe(false);
  log.scrolling.move(9);
  expect([log.scrolling.shown[0]?.line, log.scrolling.isFollowing]).toEqual([996, true]);
});

test("a jump shows the line with some before it, and does not follow", async () => {
  const log = open(1_000_000);
  await log.scrolling.toLine(900_000);
  expect([seen(log), log.scrolling.isFollowing]).toEqual([[899_997, 900_006], false]);
});

test("matches alone are another list, for which nothing is read", async () => {
  let matches: LogLine[] | null = null;
  const log = open(1000, () => matches);
  await log.scrolling.toLine(500);
  const before = log.asked.length;
  matches = Array.from({ length: 50 }, (_, index) => line(1 + 20 * index));
  log.scrolling.toListed(25);
  expect([seen(log), log.scrolling.height]).toEqual([[441, 621], 50 * ROW]);
  log.scrolling.move(1000);
  expect([seen(log), log.asked.length]).toEqual([[801, 981], before]);
});

test("another filter is another log, and what was read for the one before is dropped", async () => {
  const log = open(1000);
  const old = log.scrolling.toLine(500);
  log.scrolling.lines.reset();
  await Promise.all([old, log.scrolling.toEnd()]);
  expect(seen(log)).toEqual([991, 1000]);
});

test("a failure is shown until a request succeeds, and lines that were missed come then", async () => {
  const log = open(1000);
  await log.scrolling.toEnd();
  [log.isDown, log.total] = [true, 1020];
  await log.scrolling.catchUp();
  expect([log.scrolling.lines.failure, seen(log)]).toEqual(["down", [991, 1000]]);
  log.isDown = false;
  await log.scrolling.catchUp();
  expect([log.scrolling.lines.failure, seen(log)]).toEqual([null, [1011, 1020]]);
});

test("a scrollbar that is dragged shows the lines of its place, and one that was put does nothing", async () => {
  const log = open(1_000_000);
  const element = document.createElement("div");
  log.scrolling.scrollbar.element = element;
  await log.scrolling.toEnd();
  await settled();
  const asked = log.asked.length;
  log.scrolling.dragged();
  expect([log.scrolling.isFollowing, log.asked.length]).toEqual([true, asked]);
  element.scrollTop /= 2;
  log.scrolling.dragged();
  await settled();
  const [first] = seen(log);
  expect([Math.abs(first - 500_000) < 10, log.scrolling.isFollowing]).toEqual([true, false]);
});

test("a place of the scrollbar and the line that it stands for are each other's", () => {
  for (const length of [5, 1000, 3_000_000]) {
    const extent = { length, rows: 10, viewport: 180 };
    for (const share of [0, 0.25, 1]) {
      const first = Math.round(share * Math.max(length - extent.rows, 0));
      const back = firstAt(offsetOf(first, extent), extent);
      expect(Math.abs(back - first)).toBeLessThanOrEqual(length / 1_000_000);
    }
  }
  expect(heightOf(3_000_000)).toBe(5_000_000);
});
