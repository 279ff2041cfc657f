import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Delays } from "./delays";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test("an act happens once after its wait, which asking again does not put off", () => {
  const done: string[] = [];
  const delays = new Delays();
  for (let at = 0; at < 100; at += 10) {
    delays.soon("read", 100, () => done.push("read"));
    vi.advanceTimersByTime(10);
  }
  expect(done).toEqual(["read"]);
  delays.soon("read", 100, () => done.push("again"));
  delays.soon("other", 100, () => done.push("other"));
  vi.advanceTimersByTime(100);
  expect(done).toEqual(["read", "again", "other"]);
});

test("what was dropped does not happen", () => {
  const delays = new Delays();
  delays.soon("read", 10, () => expect.unreachable());
  delays.clear();
  vi.advanceTimersByTime(10);
});
