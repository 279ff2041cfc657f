// @vitest-environment node
import { expect, test } from "vitest";
import { rowsOf, variable } from "./testing";
import { cut, ticksBelow, ticksOf } from "./ticks";

test("labels are round and within the axis", () => {
  const rows = rowsOf({ lr: 1e-4, n: 0.13, m: "b" }, { lr: 0.1, n: 0.97, m: "a" });
  const texts = (key: string, most: number): readonly string[] =>
    ticksOf(variable(rows, key, { isMetric: true }), most).map(({ text }) => text);
  expect(texts("n", 5)).toEqual(["0.2", "0.4", "0.6", "0.8"]);
  expect(texts("lr", 6)).toEqual(["1e−4", "0.001", "0.01", "0.1"]);
  expect(ticksOf(variable(rows, "m"), 6)).toEqual([
    { share: 0, text: "a" },
    { share: 1, text: "b" },
  ]);
});

test("a setting of a few numbers that come again has them as its labels; a long name is cut", () => {
  const rows = rowsOf({ width: 16, m: "x".repeat(30) }, { width: 64, m: "y" }, { width: 32 }, { width: 32 });
  expect(ticksOf(variable(rows, "width"), 6).map(({ text }) => text)).toEqual(["16", "32", "64"]);
  expect(ticksOf(variable(rows, "m"), 6)[0]?.text).toBe(`${"x".repeat(11)}…${"x".repeat(12)}`);
});

test("labels below a plot are so few that they stand beside one another, and keep their ends", () => {
  const rows = rowsOf(...Array.from({ length: 40 }, (_, i) => ({ m: `encoder-number-${i}`, n: i / 40 })));
  expect(ticksBelow(variable(rows, "n"), 600)).toHaveLength(5);
  expect(ticksBelow(variable(rows, "m"), 600).map(({ text }) => text)).toEqual([
    ...["encoder-number-0", "encoder-number-10", "encoder-number-20", "encoder-number-30"],
  ]);
  expect(ticksBelow(variable(rows, "m"), 140).map(({ text }) => text)).toEqual(["enc…er-0", "enc…r-20"]);
  expect([cut("abcdef", 6), cut("abcdef", 5), cut("abcdef", 1)]).toEqual(["abcdef", "ab…ef", "…f"]);
});

test("great numbers that lie close to one another have few labels", () => {
  const rows = rowsOf({ n: 1e17 }, { n: 1e17 + 64 });
  expect(ticksOf(variable(rows, "n"), 6).length).toBeLessThan(14);
});
