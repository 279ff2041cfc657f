import { expect, test } from "vitest";
import { barsPath, binAt, resampled } from "./bins";
import { between, parts } from "./colours";
import { densityPixels } from "./density";
import { allSteps, atOrBelow, away } from "./steps";
import { FITTED, moved, zoomed } from "./zoom";

const PLACE = { width: 200, height: 100 };

test("one slider has the steps of all keys, and each key its newest one that is not above", () => {
  const steps = allSteps([{ steps: [5, 20] }, { steps: [1, 5] }]);
  expect(steps).toEqual([1, 5, 20]);
  expect([0, 1, 4, 5, 19, 99].map((step) => atOrBelow(steps, step))).toEqual([null, 1, 1, 5, 5, 20]);
  expect([away(steps, 5, 1), away(steps, 20, 1), away(steps, 5, -9), away([], 5, 1)]).toEqual([
    20,
    20,
    1,
    null,
  ]);
});

test("a zoom keeps the point below the pointer, within its bounds", () => {
  const point = { x: 50, y: -20 };
  const near = zoomed(FITTED, 2, point, PLACE);
  expect(near).toEqual({ scale: 2, x: -50, y: 20 });
  // What lay below the point lies there still.
  expect([(point.x - near.x) / near.scale, (point.y - near.y) / near.scale]).toEqual([50, -20]);
  expect(zoomed(near, 1e-9, point, PLACE)).toEqual(FITTED);
  expect(zoomed(FITTED, 1e9, { x: 0, y: 0 }, PLACE).scale).toBe(40);
  expect(moved(near, 1e9, -1e9, PLACE)).toEqual({ scale: 2, x: 100, y: -50 });
  expect(moved(FITTED, 10, 10, PLACE)).toEqual(FITTED);
});

test("the area of a bar tells its count, whatever its width", () => {
  expect(barsPath({ edges: [0, 1, 3], counts: [4, 4] }, 30, 100)).toBe("M0 100V0H10V100ZM10 100V50H30V100Z");
  expect(barsPath({ edges: [0, 1], counts: [0] }, 30, 100)).toBe("");
  expect([-1, 0, 0.5, 1, 3, 4].map((value) => binAt({ edges: [0, 1, 3], counts: [4, 4] }, value))).toEqual([
    ...[null, 0, 0, 1, 1, null],
  ]);
});

test("histograms of different bins share one grid, and no count is lost", () => {
  const shares = resampled({ edges: [0, 2, 4], counts: [1, 3] }, [0, 8], 8);
  expect(shares).toEqual([0.125, 0.125, 0.375, 0.375, 0, 0, 0, 0]);
  const narrow = resampled({ edges: [1, 1.25, 1.5], counts: [2, 2] }, [0, 4], 4);
  expect(narrow).toEqual([0, 1, 0, 0]);
  expect(resampled({ edges: [2, 2], counts: [5] }, [0, 4], 4)).toEqual([0, 0, 1, 0]);
});

test("tokens are colours in both forms that the build leaves", () => {
  expect([parts("#1049aa"), parts("#fff"), parts("none")]).toEqual([
    ...[
      [16, 73, 170],
      [255, 255, 255],
      [128, 128, 128],
    ],
  ]);
  expect(between([0, 0, 0], [100, 200, 50], 0.5)).toEqual([50, 100, 25]);
});

test("of shares over steps the least values are below, and the most is darkest", () => {
  const pixels = densityPixels(
    [
      [1, 0],
      [0.25, 0.25],
    ],
    2,
    [
      [255, 255, 255],
      [55, 55, 55],
    ],
  );
  const red = [...pixels].filter((_, index) => index % 4 === 0);
  expect(red).toEqual([255, 155, 55, 155]); // the upper row, then the lower one
  expect(densityPixels([[0, 0]], 2, [[9, 9, 9], [0, 0, 0]])[0]).toBe(9); // prettier-ignore
});
