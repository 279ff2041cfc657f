// @vitest-environment node
import type { MediaKey, MediaKind } from "../api/wire";
import { expect, test } from "vitest";
import { grouped, upTo } from "./groups";
import { spanOf } from "./spans";

function entry(key: string, kind: MediaKind = "histogram", numbers = 1): MediaKey {
  return { key, kind, count: numbers, steps: [1], numbers };
}

test.each([
  ["histogram", 1, null, "one"],
  ["image", 1, null, "one"],
  ["overlay", 4, null, "two"],
  ["image", 200, null, "all"],
  ["text", 1, { text: "short" }, "one"],
  ["text", 1, { text: "a word ".repeat(100) }, "two"],
  ["text", 4, { text: "short" }, "all"],
  ["table", 1, { columns: ["a", "b", "c"], rows: [] }, "one"],
  ["table", 1, { columns: [..."abcdef"], rows: [] }, "two"],
  ["table", 1, { columns: [..."abcdefg"], rows: [] }, "all"],
  ["confusion", 1, { classes: ["a"], matrix: [[1]] }, "one"],
  ["confusion", 1, { classes: [], matrix: Array(10).fill(Array(10).fill(1)) }, "two"],
  ["table", 1, { columns: 3 }, "one"],
  ["confusion", 1, null, "one"],
] as const)("a panel is as wide as what it shows: %s of %i", (kind, numbers, data, span) => {
  expect(spanOf({ kind, numbers }, data)).toBe(span);
});

test("small panels come before those of a whole row, both in natural order", () => {
  const keys = [
    entry("val/b", "image", 60),
    entry("val/layer10"),
    entry("val/layer2"),
    entry("val/a", "text", 9),
  ];
  const [group] = grouped(keys);
  expect(group?.entries.map(({ key }) => key)).toEqual(["val/layer2", "val/layer10", "val/a", "val/b"]);
});

test("of many keys the first are shown, and no group without any", () => {
  const groups = grouped(["val/a", "val/b", "val/c", "x/a", "y/a"].map((key) => entry(key)));
  const names = (most: number): unknown =>
    upTo(most, groups).map(({ name, entries }) => [name, entries.length]);
  expect([names(2), names(3), names(4), names(99)]).toEqual([
    [["val", 2]],
    [["val", 3]],
    [["val", 3], ["x", 1]],
    [["val", 3], ["x", 1], ["y", 1]],
  ]); // prettier-ignore
});
