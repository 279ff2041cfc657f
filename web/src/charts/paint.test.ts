// @vitest-environment node
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Place } from "./axis";
import { Columns } from "./columns";
import { Line } from "./line";
import { paint } from "./paint";
import { curve } from "./testing";
import type { Theme } from "./theme";

const THEME = {
  series: ["one"],
  edge: "edge",
  muted: "muted",
  failed: "failed",
  ink: "ink",
} as unknown as Theme;
const AREA = {
  ...{ left: 50, top: 20, width: 100, height: 100, ratio: 1, log: false },
  ...{ x: { min: 1, max: 10 }, y: { min: 0, max: 10 } },
};
const RESUMED = [1, 2].map((number) => ({
  ...{ number, started_at: "", ended_at: null, start_step: number === 1 ? 0 : 10 },
}));

beforeEach(() => {
  vi.stubGlobal(
    "Path2D",
    class {
      moveTo(): void {}
      lineTo(): void {}
      closePath(): void {}
    },
  );
});
afterEach(() => vi.unstubAllGlobals());

interface Recorded {
  readonly ctx: CanvasRenderingContext2D;
  /** What was called, with which numbers. */
  readonly calls: [string, number[]][];
  /** The properties that were set when nothing would restore them. */
  readonly leaked: string[];
  readonly widths: number[];
}

function recorder(): Recorded {
  const [calls, leaked, widths]: [[string, number[]][], string[], number[]] = [[], [], []];
  let depth = 0;
  const get =
    (_: unknown, name: string) =>
    (...args: number[]) => {
      if (name === "save") depth += 1;
      if (name === "restore") depth -= 1;
      calls.push([name, args]);
      return { width: 50 };
    };
  const set = (_: unknown, name: string, value: number): boolean => {
    if (depth === 0) leaked.push(name);
    if (name === "lineWidth") widths.push(value);
    return true;
  };
  return { ctx: new Proxy({}, { get, set }) as CanvasRenderingContext2D, calls, leaked, widths };
}

function painted(values: readonly number[]): Recorded {
  const found = recorder();
  const columns = Columns.of(curve("loss", values), 0);
  const line = new Line({
    ...{ jobId: "job_a", job: "a", name: "a", key: "loss", part: null, colour: { slot: 1, dash: [] } },
    ...{ columns, place: new Place("step", RESUMED) },
  });
  paint(found.ctx, AREA, [line], { smooth: false, breakAtSeams: false }, THEME);
  return found;
}

/** Paints so many lines, each of a job. */
function paintedOf(count: number): Recorded {
  const found = recorder();
  const lines = Array.from({ length: count }, (_, at) => {
    const columns = Columns.of(curve("loss", [at, 5 + at / 100]), 0);
    const name = at === 0 ? "a-name-that-is-much-too-long" : `job ${at}`;
    return new Line({
      ...{ jobId: name, job: name, name, key: "loss", part: null, colour: { slot: 1, dash: [] } },
      ...{ columns, place: new Place("step", []) },
    });
  });
  paint(found.ctx, AREA, lines, { smooth: false, breakAtSeams: false }, THEME);
  return found;
}

test("what paints leaves the canvas as it was: uPlot draws the grid of the next frame with it", () => {
  expect(painted([1, 99, NaN, -99, 5]).leaked).toEqual([]);
});

test("marks of what lies outside stand beyond the edge, beside one another, and never over the axis", () => {
  const { calls } = painted([99, 99, 5, 5, 5, -99]);
  const corners = calls.filter(([name]) => name === "moveTo" || name === "lineTo").map(([, at]) => at);
  const tips = (edge: number): number => corners.filter(([, y]) => y === edge).length;
  expect([tips(14), tips(126)]).toEqual([3, 1]); // two marks and the seam; one mark
  expect(Math.min(...corners.map(([x = 0]) => x))).toBe(AREA.left);
});

test("the name of an attempt stands above the plot, and within its width", () => {
  const { calls } = painted([1, 2, 3]);
  expect(calls.filter(([name]) => name === "fillText").map(([, args]) => args)).toEqual([
    ["attempt 2", 100, 14],
  ]);
});

test("the names of a few lines stand at their ends, below one another, and those of many nowhere", () => {
  const named = (count: number): [string, number, number][] => {
    const { calls } = paintedOf(count);
    return calls
      .filter(([name]) => name === "fillText")
      .map(([, at]) => at as unknown as [string, number, number]);
  };
  const shown = named(6);
  expect(shown.map(([text]) => text)).toEqual([
    "job 5",
    "job 4",
    "job 3",
    "job 2",
    "job 1",
    "a-name-that-is-…",
  ]);
  const heights = shown.map(([, , y]) => y);
  expect(heights.slice(1).every((y, at) => y - (heights[at] ?? 0) >= 13)).toBe(true);
  expect([Math.min(...heights) >= AREA.top, Math.max(...heights) <= AREA.top + AREA.height]).toEqual([
    true,
    true,
  ]);
  expect([named(1), named(7)]).toEqual([[], []]);
});

test("more than twenty lines are one pixel wide", () => {
  expect([20, 21].map((count) => Math.max(...paintedOf(count).widths))).toEqual([1.5, 1]);
});
