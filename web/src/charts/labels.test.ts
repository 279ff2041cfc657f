// @vitest-environment node
import { expect, test } from "vitest";
import { evenTicks, logTicks, roundSteps, tickText } from "./labels";

test("even ticks are round, and no more than have room, however great or small the values are", () => {
  expect(evenTicks(0, 1.01, 4)).toEqual([0, 0.5, 1]);
  expect(evenTicks(0, 0.96, 4)).toEqual([0, 0.25, 0.5, 0.75]);
  expect(evenTicks(-1, 1, 5)).toEqual([-1, -0.5, 0, 0.5, 1]);
  expect(evenTicks(0, 2e33, 2)).toEqual([0, 1e33, 2e33]);
  expect(evenTicks(0, 2e-27, 2).map(tickText)).toEqual(["0", "1e−27", "2e−27"]);
});

test("distances between ticks reach beyond what is asked for", () => {
  for (const rough of [0.003, 1, 7, 1e20]) expect(Math.max(...roundSteps(rough))).toBeGreaterThan(rough);
});

test("ticks of a logarithmic axis are decades, and even within less than one", () => {
  expect(logTicks(0.5, 2e4)).toEqual([1, 10, 100, 1000, 10_000]);
  expect(logTicks(0.47, 0.53)).toEqual([0.48, 0.5, 0.52]);
});
