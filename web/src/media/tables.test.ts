import type { MediaView } from "../api/wire";
import { expect, test } from "vitest";
import { gridOf, histogramOf, matrixOf, noteIn, textIn } from "./data";
import { classFigures, countText, pairs, samplesOf } from "./matrix";
import { columnWidths, csvOf, numeric, sorted } from "./rows";

const GRID = {
  columns: ["name", "loss"],
  rows: [
    ["run 10", 2],
    ["run 9", null],
    ["run 2", -1],
  ],
} as const;

test("a table sorts numbers by value and texts as people count; what lacks comes last either way", () => {
  const names = (column: number, isDescending: boolean): unknown[] =>
    sorted(GRID, { column, isDescending }).map(([name]) => name);
  expect(names(1, false)).toEqual(["run 2", "run 10", "run 9"]);
  expect(names(1, true)).toEqual(["run 10", "run 2", "run 9"]);
  expect(names(0, false)).toEqual(["run 2", "run 9", "run 10"]);
  expect(sorted(GRID, null)).toBe(GRID.rows);
  expect([numeric(GRID), columnWidths(GRID)]).toEqual([
    [false, true],
    [6, 2],
  ]);
});

test("as CSV a table has all digits, and no text that a spreadsheet runs", () => {
  const rows = [
    ["=HYPERLINK(1)", -1.23456789e-7],
    ['a "b", c\nd', null],
    ["@x", true],
  ];
  expect(csvOf(["+name", "loss"], rows)).toBe(
    `'+name,loss\r\n'=HYPERLINK(1),-1.23456789e-7\r\n"a ""b"", c\nd",\r\n'@x,true\r\n`,
  );
  expect(csvOf([], [])).toBe("\r\n");
});

test("pairs that are confused come before those that are right", () => {
  const matrix = {
    classes: ["a", "b"],
    matrix: [
      [8, 2],
      [5, 15],
    ],
  };
  expect(pairs(matrix).map(({ truth, taken, count, share }) => [truth, taken, count, share])).toEqual([
    [1, 0, 5, 0.25],
    [0, 1, 2, 0.2],
    [1, 1, 15, 0.75],
    [0, 0, 8, 0.8],
  ]);
});

test("each class has its recall, precision and F1, where there is something to divide by", () => {
  const matrix = { classes: ["a", "b", "c"], matrix: [[8, 2, 0], [4, 0, 0], [0, 0, 0]] }; // prettier-ignore
  expect(classFigures(matrix)).toEqual([
    { samples: 10, recall: 0.8, precision: 8 / 12, f1: 16 / 22 },
    { samples: 4, recall: 0, precision: 0, f1: 0 },
    { samples: 0, recall: null, precision: null, f1: null },
  ]);
});

test("a count that no samples have is short", () => {
  expect([0, 4000, 0.5, 1e308].map(countText)).toEqual(["0", "4,000", "0.5", "1e308"]);
});

test("samples belong to the cell that their captions name", () => {
  const items = [
    "b instead of a (0.93)",
    "a instead of b (0.9)",
    "b instead of a",
    null,
    "xb instead of a",
  ].map((caption, number) => ({ caption, number }) as MediaView);
  const matrix = { classes: ["a", "b"], matrix: [] };
  expect(samplesOf(items, matrix, { truth: 0, taken: 1 }).map((item) => item.number)).toEqual([0, 2]);
});

test("data that has another form than it should is nothing", () => {
  const broken = [null, 3, {}, { edges: [1], counts: [1] }, { edges: [0, "1"], counts: [1] }];
  expect(broken.map(histogramOf)).toEqual(broken.map(() => null));
  expect(histogramOf({ edges: [0, 1], counts: [3], note: "x" })).toEqual({ edges: [0, 1], counts: [3] });
  expect([matrixOf({ matrix: [[1, 2]] }), matrixOf({ matrix: [] }), matrixOf({ matrix: [["1"]] })]).toEqual([
    ...[null, null, null],
  ]);
  expect(matrixOf({ matrix: [[1]] })).toEqual({ classes: ["0"], matrix: [[1]] });
  expect(gridOf({ columns: ["a", 1], rows: [[1], "no row", [{ x: 1 }, true]] })).toEqual({
    columns: ["a", "1"],
    rows: [
      [1, null],
      ['{"x":1}', true],
    ],
  });
  expect([
    gridOf({ columns: 1, rows: [] }),
    textIn({ text: 3 }),
    noteIn({ note: "cut" }),
    noteIn(null),
  ]).toEqual([...[null, null, "cut", null]]);
});
