import { expect, test } from "vitest";
import type { LogLine } from "../../../api/wire";
import { choice, filterOf, passes, readAddress, searchOf } from "./address";
import { rowsOfKey, rowsOfWheel } from "./keys";

const read = (text: string): ReturnType<typeof readAddress> => readAddress(new URLSearchParams(text));
const line = (changes: Partial<LogLine>): LogLine => ({ attempt: 1, rank: 0, ...changes }) as LogLine;

test("an empty address is all of the log", () => {
  const address = read("");
  expect(filterOf(address)).toEqual({ rank: null, attempt: null });
  expect(searchOf(address)).toBeNull();
  expect(passes(address, line({ rank: null }))).toBe(true);
});

test("lines of the launcher are those without a rank", () => {
  const address = read("rank=launcher&attempt=2");
  expect(filterOf(address)).toEqual({ launcher: true, attempt: "2" });
  expect(passes(address, line({ rank: null, attempt: 2 }))).toBe(true);
  expect(passes(address, line({ rank: null }))).toBe(false);
  expect(passes(address, line({ attempt: 2 }))).toBe(false);
});

test("a search has the filter, and only with one are matches listed alone", () => {
  const address = read("rank=1&q=OOM&regex=1&only=1&line=7");
  expect(searchOf(address)).toEqual({ q: "OOM", regex: true, rank: "1", attempt: null });
  expect([address.isOnly, address.chosen]).toEqual([true, 7]);
  expect(read("only=1").isOnly).toBe(false);
});

test("keys and wheel move by rows", () => {
  expect(["ArrowUp", "PageDown", "PageUp", " ", "x"].map((key) => rowsOfKey(key, 20))).toEqual([
    ...[-1, 18, -18, 18],
    undefined,
  ]);
  const wheel = (turn: Partial<WheelEvent>): number | undefined =>
    rowsOfWheel({ ctrlKey: false, deltaX: 0, deltaY: 0, deltaMode: 0, ...turn });
  expect([wheel({ deltaY: 3 }), wheel({ deltaY: -40 }), wheel({ deltaY: 3, deltaMode: 1 })]).toEqual([
    1, -3, 3,
  ]);
  expect([wheel({ deltaY: 9, ctrlKey: true }), wheel({ deltaY: 1, deltaX: 2 })]).toEqual([
    undefined,
    undefined,
  ]);
});

test("a line is chosen, a range with Shift, and what is chosen again is let go", () => {
  const none = { chosen: 0, to: 0 };
  expect(choice(none, 5, false)).toEqual({ line: "5", to: null });
  expect(choice(none, 5, true)).toEqual({ line: "5", to: null });
  expect(choice({ chosen: 5, to: 5 }, 9, true)).toEqual({ line: "5", to: "9" });
  expect(choice({ chosen: 5, to: 5 }, 2, true)).toEqual({ line: "2", to: "5" });
  expect(choice({ chosen: 5, to: 9 }, 5, false)).toEqual({ line: "5", to: null });
  expect(choice({ chosen: 5, to: 5 }, 5, false)).toEqual({ line: null, to: null });
});

test("numbers of an address that are none are no line", () => {
  expect([read("line=-3").chosen, read("line=x").chosen, read("line=7&to=2").to]).toEqual([0, 0, 7]);
});
