// @vitest-environment node
import { expect, test } from "vitest";
import type { Theme } from "../charts/theme";
import { brushedBy, brushesOf, brushText, kept, rangeText } from "./brush";
import { betterOf } from "./direction";
import { correlationRatio, importanceOf, ranksOf, spearman } from "./importance";
import { nearest, pathOf, placeAt, shareAt, sharesOf, sideOf, xOf, yOf } from "./parallel";
import { rampOf, STEPS, stepOf } from "./ramp";
import { numberAt, shareOf, variablesOf } from "./rows";
import { pointsOf } from "./scatter";
import { named, rowsOf, variable } from "./testing";
import { queryOf, readPlots } from "./view";

/** Numbers that look random and are the same each time. */
function numbers(count: number, seed: number): number[] {
  let state = seed;
  return Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  });
}

test("equal values share their mean rank", () => {
  expect(ranksOf([30, 10, 20, 20, 40])).toEqual([4, 1, 2.5, 2.5, 5]);
  expect(ranksOf([7, 7, 7])).toEqual([2, 2, 2]);
});

test("Spearman's correlation is that of the textbook, with ties and without", () => {
  // Hours of television against IQ: Σd² = 194, n = 10, so 1 − 6·194/990.
  const iq = [106, 86, 100, 101, 99, 103, 97, 113, 112, 110];
  const hours = [7, 0, 27, 50, 28, 29, 20, 12, 6, 17];
  expect(spearman(iq, hours)).toBeCloseTo(-29 / 165, 12);
  // Ranks 1, 2.5, 2.5, 4 and 1.5, 1.5, 3, 4: 3.75 / √(4.5 · 4.5).
  expect(spearman([1, 2, 2, 3], [1, 1, 2, 3])).toBeCloseTo(3.75 / 4.5, 12);
  expect([spearman([1, 2, 3], [5, 7, 9]), spearman([1, 2, 3], [9, 7, 5])]).toEqual([1, -1]);
  expect(spearman([1, 1, 1], [1, 2, 3])).toBeNull();
});

test("Spearman's correlation and the correlation ratio are those of scipy, with many ties", () => {
  // scipy.stats.spearmanr(xs, ys).statistic, and the root of scipy.stats.kruskal(…).statistic / (n - 1)
  const expected = [
    [0.0006135556323182097, 0.12051041595048934],
    [-0.07157087486568366, 0.0945553837847039],
    [-0.12404759112453724, 0.24098470762539492],
  ];
  for (const [i, [correlation = NaN, ratio = NaN]] of expected.entries()) {
    const xs = numbers(40, i + 1);
    const ys = numbers(40, i + 101).map((y) => Math.round(y * 20));
    expect(
      spearman(
        xs.map((x) => Math.round(x * 12)),
        ys,
      ),
    ).toBeCloseTo(correlation, 12);
    expect(
      correlationRatio(
        xs.map((x) => String(Math.floor(x * 4))),
        ys,
      ),
    ).toBeCloseTo(ratio, 12);
  }
});

test("no monotone map of either side changes the correlation; a falling one turns its sign", () => {
  for (let seed = 1; seed <= 20; seed++) {
    const xs = numbers(40, seed).map((x) => Math.round(x * 12)); // with ties
    const ys = numbers(40, seed + 100);
    const found = spearman(xs, ys) ?? NaN;
    expect(
      spearman(
        xs.map((x) => Math.exp(x / 3)),
        ys.map((y) => y ** 3 - 7),
      ),
    ).toBeCloseTo(found, 12);
    expect(
      spearman(
        xs.map((x) => -x),
        ys,
      ),
    ).toBeCloseTo(-found, 12);
    expect(Math.abs(found)).toBeLessThanOrEqual(1);
  }
});

test("categories explain what lies between them", () => {
  expect(correlationRatio(["a", "a", "b", "b"], [1, 2, 9, 10])).toBeCloseTo(Math.sqrt(4 / 5), 12);
  expect(correlationRatio(["a", "b", "a", "b"], [1, 2, 4, 3])).toBe(0);
  expect(correlationRatio(["a", "a"], [1, 2])).toBeNull();
});

test("importance is ordered, says how many runs it counts, and is silent of too few", () => {
  const rows = rowsOf(
    ...Array.from({ length: 12 }, (_, i) => ({
      ...{ lr: i, seed: (i * 5) % 12, model: i < 6 ? "small" : "big", path: `p${i}` },
      ...{ warmup: i < 7 ? i : null, loss: i === 11 ? NaN : -i },
    })),
  );
  const all = variablesOf(
    rows,
    ["seed", "path", "warmup", "model", "lr"].map((key) => named(key)),
  );
  const found = importanceOf(rows, all, variable(rows, "loss", { isMetric: true }));
  const said = Object.fromEntries(found.map((one) => [one.variable.key, one]));
  expect(found.map((one) => one.variable.key).slice(0, 2)).toEqual(["lr", "model"]);
  expect(said["lr"]).toMatchObject({ strength: 1, sign: -1, count: 11 });
  expect(said["model"]).toMatchObject({ sign: null, note: "correlation ratio" });
  expect(said["warmup"]).toMatchObject({ strength: null, count: 7, note: "too few runs" });
  expect(said["path"]).toMatchObject({ strength: null, note: "too many different values" });
});

test("a best value in the middle of a range shows, of a grid and of random values, and chance does not", () => {
  const hump = (lr: number, noise: number): number => -Math.abs(Math.log10(lr / 0.003)) + noise / 5;
  const noise = numbers(60, 3);
  const grid = [0.0003, 0.001, 0.003, 0.01, 0.03].flatMap((lr) =>
    [8, 16, 32, 64].map((batch) => ({ lr, batch })),
  );
  const random = noise.map((x, i) => ({ lr: 10 ** (-4 + 3 * x), batch: 8 * 2 ** (i % 4) }));
  for (const [points, best] of [
    [grid, /^best at 0.003 \(correlation ratio\)$/],
    [random, /^best at 0\.00\d+–0\.00\d+ \(correlation ratio\)$/],
  ] as const) {
    const rows = rowsOf(
      ...points.map((point, i) => ({ ...point, iou: hump(point.lr, noise[(i * 7) % 60] ?? 0) })),
    );
    const settings = variablesOf(rows, [named("batch"), named("lr")]);
    const target = variable(rows, "iou", { isMetric: true, better: "max" });
    const [first, second] = importanceOf(rows, settings, target);
    expect([first?.variable.key, second?.variable.key]).toEqual(["lr", "batch"]);
    expect(first).toMatchObject({ sign: null, note: expect.stringMatching(best) as string });
    expect(first?.strength).toBeGreaterThan(0.7);
    expect(second?.strength).toBeLessThan(0.3);
  }
});

test("a variable is a number or a category, logarithmic where it spans decades or says so", () => {
  const rows = rowsOf(
    { lr: 1e-4, n: 1, on: "true", mix: 1 },
    { lr: 0.1, n: 3, on: "false", mix: "a" },
    { n: NaN },
  );
  expect(variable(rows, "lr")).toMatchObject({ isLog: true, min: 1e-4, max: 0.1, categories: null });
  expect(variable(rows, "lr", { isLog: false }).isLog).toBe(false);
  expect(variable(rows, "n")).toMatchObject({ isLog: false, min: 1, max: 3 });
  expect(variable(rows, "n", { isLog: true }).isLog).toBe(true);
  expect(variable(rows, "on").categories).toEqual(["false", "true"]);
  expect(variable(rows, "mix").categories).toEqual(["1", "a"]);
  expect(variablesOf(rows, [named("gone")])).toEqual([]);
});

test("values lie on their axis, and what is none lies nowhere", () => {
  const rows = rowsOf({ lr: 0.001, m: "a", same: 5 }, { lr: 0.1, m: "b", same: 5 }, { lr: 0.01, m: "c" });
  const lr = variable(rows, "lr");
  expect([shareOf(lr, 0.001), shareOf(lr, 0.1)]).toEqual([0, 1]);
  expect(shareOf(lr, 0.01)).toBeCloseTo(0.5, 12);
  expect(numberAt(lr, 0.5)).toBeCloseTo(0.01, 12);
  expect([null, undefined, NaN, Infinity, "x"].map((value) => shareOf(lr, value))).toEqual([
    ...[null, null, null, null, null],
  ]);
  expect(shareOf(variable(rows, "m"), "b")).toBe(0.5);
  expect(shareOf(variable(rows, "same"), 5)).toBe(0.5);
});

test("runs are kept that lie within all ranges, at their edges too", () => {
  const rows = rowsOf({ lr: 0, n: 0 }, { lr: 5, n: 10 }, { lr: 10, n: 5 }, { n: 5 });
  const all = [variable(rows, "lr"), variable(rows, "n")];
  expect(kept(rows, all, {})).toEqual([true, true, true, true]);
  expect(kept(rows, all, { lr: { from: 0.5, to: 1 } })).toEqual([false, true, true, false]);
  expect(kept(rows, all, { lr: { from: 0.5, to: 1 }, n: { from: 0, to: 0.5 } })).toEqual([
    ...[false, false, true, false],
  ]);
});

test("arrow keys make, move and resize a range within its axis, and Escape takes it away", () => {
  expect(brushedBy(undefined, "ArrowUp", false)).toEqual({ from: 0.5, to: 1 });
  expect(brushedBy({ from: 0.5, to: 1 }, "ArrowUp", false)).toEqual({ from: 0.5, to: 1 });
  expect(brushedBy({ from: 0.5, to: 1 }, "ArrowDown", false)).toEqual({ from: 0.45, to: 0.95 });
  expect(brushedBy({ from: 0.5, to: 1 }, "ArrowDown", true)).toEqual({ from: 0.5, to: 0.95 });
  expect(brushedBy({ from: 0.5, to: 0.52 }, "ArrowDown", true)).toEqual({ from: 0.5, to: 0.55 });
  expect(brushedBy({ from: 0.5, to: 1 }, "Escape", false)).toBeNull();
  expect([brushedBy(undefined, "Escape", false), brushedBy(undefined, "a", false)]).toEqual([
    undefined,
    undefined,
  ]);
});

test("ranges survive the address, whatever their keys", () => {
  const brushes = { "config.lr": { from: 0.25, to: 0.5 }, "labels.a,b:c%~": { from: 0, to: 1 } };
  expect(brushesOf(brushText(brushes))).toEqual(brushes);
  expect(brushesOf("lr:0.5~0.2,lr:x,:0~1,n:0~9,%E0%A4%A:0~1")).toEqual({ "%E0%A4%A": { from: 0, to: 1 } });
  const view = { target: "val/loss", axes: ["lr", "a,b%2C", "val/loss"], brushes, x: "lr", y: "val/loss" };
  const query = Object.entries(queryOf(view)) as [string, string][];
  expect(readPlots(new URLSearchParams(query))).toEqual(view);
});

test("a range says what it holds", () => {
  const rows = rowsOf({ lr: 1, m: "a" }, { lr: 5, m: "b" }, { lr: 5, m: "c" });
  expect(rangeText(variable(rows, "lr"), { from: 0.5, to: 1 })).toBe("3 to 5");
  expect(rangeText(variable(rows, "m"), { from: 0.4, to: 1 })).toBe("b, c");
  expect([
    rangeText(variable(rows, "m"), { from: 0.6, to: 0.7 }),
    rangeText(variable(rows, "lr"), undefined),
  ]).toEqual([...["none", "all"]]);
});

test("lines run from axis to axis, leave a gap where a value is missing, and are found beside the pointer", () => {
  const rows = rowsOf({ a: 0, b: 10, c: 0 }, { a: 10, b: 0, c: 10 }, { a: 5, c: 5 });
  const axes = ["a", "b", "c"].map((key) => variable(rows, key));
  const frame = { width: 312, height: 156, left: 56, right: 56 };
  const shares = sharesOf(rows, axes);
  expect([0, 1, 2].map((place) => xOf(frame, place, 3))).toEqual([56, 156, 256]);
  expect([yOf(frame, 0), yOf(frame, 1), shareAt(frame, 90), shareAt(frame, 999)]).toEqual([140, 40, 0.5, 0]);
  expect([placeAt(frame, 0, 3), placeAt(frame, 180, 3), placeAt(frame, 999, 3)]).toEqual([0, 1, 2]);
  expect(pathOf(frame, shares, 0)).toBe("M56.0 140.0L156.0 40.0L256.0 140.0");
  expect(pathOf(frame, shares, 2)).toBe("M56.0 90.0M256.0 90.0");
  const scene = {
    frame,
    shares,
    kept: [true, true, true],
    target: variable(rows, "a"),
    targets: new Float64Array(3),
  };
  expect([nearest(scene, 81, 116), nearest(scene, 81, 66), nearest(scene, 10, 10)]).toEqual([0, 1, -1]);
  expect(nearest({ ...scene, kept: [false, true, true] }, 81, 116)).toBe(-1);
});

test("an axis at the side has room for its labels and for half of its name", () => {
  expect([
    sideOf([], "", 6),
    sideOf(["adamw", "a long name"], "lr", 6),
    sideOf(["1"], "x".repeat(20), 6),
  ]).toEqual([...[32, 78, 60]]);
});

test("a scatter has the runs with both values", () => {
  const rows = rowsOf({ x: 0, y: 1 }, { x: 1 }, { x: 2, y: 3 });
  expect(pointsOf(rows, variable(rows, "x"), variable(rows, "y"))).toEqual([
    { row: 0, x: 0, y: 0 },
    { row: 2, x: 1, y: 1 },
  ]);
});

test("colours go from the worst to the best, which stands out most in either theme", () => {
  const blue = "#1049aa";
  const yellow = "#ffe352";
  const theme = (bg: string): Theme => ({ bg, series: [blue, "", "", "", yellow] }) as unknown as Theme;
  expect([rampOf(theme("#ffffff")).at(0), rampOf(theme("#ffffff")).at(-1)]).toEqual([yellow, blue]);
  expect([rampOf(theme("#000000")).at(0), rampOf(theme("#000000")).at(-1)]).toEqual([blue, yellow]);
  expect([stepOf(0, "min"), stepOf(1, "min"), stepOf(1, "max"), stepOf(0, null)]).toEqual([
    STEPS - 1,
    0,
    STEPS - 1,
    0,
  ]);
});

test("a metric's direction is that of the jobs that watch it, else of its name, else unknown", () => {
  expect(betterOf("val/loss")).toBe("min");
  expect(["val/accuracy", "val/mean_iou", "f1"].map((key) => betterOf(key))).toEqual(["max", "max", "max"]);
  expect(["lr", "train/glossary", "accuracy_loss"].map((key) => betterOf(key))).toEqual([null, null, "min"]);
  expect(betterOf("val/loss", [{ monitor: "val/loss", mode: "max" }])).toBe("max");
  const both = [{ monitor: "x", mode: "max" } as const, { monitor: "x", mode: "min" } as const];
  expect(betterOf("x", both)).toBeNull();
});

test("an axis may have the name of what every object has", () => {
  const rows = rowsOf({ constructor: 1 }, { constructor: 3 }, {});
  const axis = variable(rows, "constructor");
  expect([axis.categories, axis.min, axis.max]).toEqual([null, 1, 3]);
  expect(kept(rows, [axis], {})).toEqual([true, true, true]);
  const brushes = brushesOf("constructor:0.5~1,__proto__:0~1");
  expect(kept(rows, [axis], brushes)).toEqual([false, true, false]);
  expect(brushText(brushes)).toBe("constructor:0.5~1,__proto__:0~1");
});
