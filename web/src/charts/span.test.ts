// @vitest-environment node
import { expect, test } from "vitest";
import { panned, zoomed } from "./span";

const WHOLE = { min: 0, max: 100 };

test("a zoom keeps its middle, and stays within what there is", () => {
  expect(zoomed(WHOLE, WHOLE, 0.5)).toEqual({ min: 25, max: 75 });
  expect(zoomed({ min: 0, max: 20 }, WHOLE, 2)).toEqual({ min: 0, max: 40 });
  expect(zoomed({ min: 40, max: 60 }, WHOLE, 0.5, 40)).toEqual({ min: 40, max: 50 });
  expect(zoomed({ min: 10, max: 80 }, WHOLE, 2)).toBeNull();
});

test("moving a zoom ends at the ends", () => {
  expect(panned({ min: 40, max: 60 }, WHOLE, 0.25)).toEqual({ min: 45, max: 65 });
  expect(panned({ min: 40, max: 60 }, WHOLE, -9)).toEqual({ min: 0, max: 20 });
  expect(panned({ min: 90, max: 100 }, WHOLE, 0.25)).toEqual({ min: 90, max: 100 });
});
