import { expect, test } from "vitest";
import {
  counted,
  IGNORED,
  iou,
  isFirstBackground,
  outcomeOf,
  paintClasses,
  paintErrors,
  type Mask,
} from "./masks";

const ALL = { focus: null, hasBackground: true };
const COLOURS = { found: [1, 2, 3], missed: [4, 5, 6], false: [7, 8, 9], other: [10, 11, 12] } as const;

function mask(...classes: number[]): Mask {
  return { width: classes.length, height: 1, classes: new Uint8Array(classes) };
}

test("a pixel is found, missed, false or of another class, and one that is ignored is nothing", () => {
  const seen = [
    [0, 0],
    [1, 1],
    [1, 0],
    [0, 1],
    [1, 2],
    [IGNORED, 1],
  ].map(([truth, predicted]) => outcomeOf(truth ?? 0, predicted ?? 0, ALL));
  expect(seen).toEqual([null, "found", "missed", "false", "other", null]);
});

test("of one class, the others are the background", () => {
  const focus = { focus: 2, hasBackground: true };
  expect([outcomeOf(1, 2, focus), outcomeOf(2, 1, focus), outcomeOf(1, 1, focus)]).toEqual([
    "false",
    "missed",
    null,
  ]);
});

test("where 0 is a class of its own, it is found and confused like the others", () => {
  const focus = { focus: null, hasBackground: false };
  expect([outcomeOf(0, 0, focus), outcomeOf(0, 1, focus)]).toEqual(["found", "other"]);
  expect([null, ["crack"], ["Background", "crack"], ["road", "car"]].map(isFirstBackground)).toEqual([
    true,
    true,
    true,
    false,
  ]);
});

test("the intersection over the union counts what is wrong in either way", () => {
  const counts = counted(mask(1, 1, 1, 0, 0, IGNORED), mask(1, 1, 0, 1, 0, 1), ALL);
  expect(counts).toEqual({ found: 2, missed: 1, false: 1, other: 0 });
  expect([iou(counts), iou(counted(mask(0), mask(0), ALL))]).toEqual([0.5, null]);
});

test("errors are painted in their colours, and differ by their patterns without them", () => {
  const wide = 16;
  const [truth, predicted] = [1, 0].map((index) => mask(...new Array<number>(wide).fill(index))) as [
    Mask,
    Mask,
  ];
  const alphas = (drawn: Uint8ClampedArray): string =>
    Array.from({ length: wide }, (_, x) => drawn[x * 4 + 3]).join(" ");
  const found = paintErrors(truth, truth, ALL, COLOURS);
  const missed = paintErrors(truth, predicted, ALL, COLOURS);
  const wrong = paintErrors(predicted, truth, ALL, COLOURS);
  expect([...found.slice(0, 3), ...missed.slice(0, 3), ...wrong.slice(0, 3)]).toEqual([
    1, 2, 3, 4, 5, 6, 7, 8, 9,
  ]);
  expect(new Set(alphas(found).split(" ")).size).toBe(1);
  expect(new Set(alphas(missed).split(" ")).size).toBe(2);
});

test("classes are painted in their colours, one alone where it is asked for, and the background never", () => {
  const colourOf = (index: number): readonly [number, number, number] => [index, index, index];
  const red = (drawn: Uint8ClampedArray): number[] =>
    [0, 1, 2, 3].map((i) => (drawn[i * 4 + 3] ? (drawn[i * 4] ?? 0) : -1));
  const shown = mask(0, 1, 2, IGNORED);
  expect(red(paintClasses(shown, ALL, colourOf))).toEqual([-1, 1, 2, -1]);
  expect(red(paintClasses(shown, { focus: 2, hasBackground: true }, colourOf))).toEqual([-1, -1, 2, -1]);
  expect(red(paintClasses(shown, { focus: null, hasBackground: false }, colourOf))).toEqual([0, 1, 2, -1]);
});
