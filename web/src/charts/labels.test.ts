// @vitest-environment node
import { expect, test } from "vitest";
import { clockTicks, evenTicks, logTicks, placeTicks, roundSteps, tickText, TIME_STEPS } from "./labels";

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

test("a wall clock has labels for a tenth of a second and for ten years", () => {
  const from = Date.parse("2026-03-01T10:00:00.96") / 1000;
  for (const seconds of [0.05, 0.1, 3, 4000, 1e6, 3e8]) {
    const step = TIME_STEPS.find((each) => each >= seconds / 8) ?? NaN;
    const places = clockTicks(from, from + seconds, step);
    const labels = placeTicks("wall", places, step);
    expect(labels.length, `${seconds} s`).toBeGreaterThan(1);
    if (seconds < 1) expect(new Set(labels).size).toBe(labels.length);
  }
  expect(placeTicks("wall", clockTicks(from, from + 0.1, 0.05), 0.05)).toEqual([
    "10:00:01.00",
    "10:00:01.05",
  ]);
  expect(placeTicks("trained", [0, 0.5], 0.5)).toEqual(["0.0s", "0.5s"]);
});
