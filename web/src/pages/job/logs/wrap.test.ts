import { expect, test } from "vitest";
import { textOfLines } from "./copied";
import { firstOfLast, rowsOf } from "./wrap";

test("a line takes as many rows as a terminal would give it, with the time before it", () => {
  expect(rowsOf("", 40)).toBe(1);
  expect(rowsOf("x".repeat(31), 40)).toBe(1);
  expect(rowsOf("x".repeat(32), 40)).toBe(2);
  expect(rowsOf(`12:00:00 ${"x".repeat(31)}`, 40)).toBe(1);
  expect(rowsOf(`\x1b[31m${"x".repeat(31)}\x1b[0m`, 40)).toBe(1);
  expect(rowsOf("x".repeat(100_000), 40)).toBe(12);
});

test("the last lines that fit are those whose rows fit together", () => {
  const lines = ["short", "x".repeat(71), "short", "short"].map((text) => ({ text }));
  expect(firstOfLast(lines, 10, 40)).toBe(0);
  expect(firstOfLast(lines, 4, 40)).toBe(1);
  expect(firstOfLast(lines, 3, 40)).toBe(2);
  expect(firstOfLast(lines, 1, 40)).toBe(3);
  expect([firstOfLast([{ text: "x".repeat(400) }], 5, 40), firstOfLast([], 5, 40)]).toEqual([0, 0]);
});

test("a long range is read page by page, up to what is copied at most", async () => {
  const asked: number[] = [];
  const read = (after: number, limit: number) => {
    asked.push(after);
    const lines = Array.from({ length: limit }, (_, index) => ({ line: after + 1 + index, text: "x" }));
    return Promise.resolve(lines as never[]);
  };
  expect(await textOfLines(read, 5, 2504)).toBe("x\n".repeat(2500));
  expect(asked).toEqual([4, 1004, 2004]);
  expect(await textOfLines(read, 1, 1_000_000)).toBe("x\n".repeat(10_000));
});
