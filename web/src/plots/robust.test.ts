import { afterEach, expect, test, vi } from "vitest";
import type { SweepView, TrialView } from "../api/wire";
import { removeAll, show, textOf } from "../testing";
import { trialPoints } from "./best";
import BestSoFar from "./BestSoFar.svelte";
import { robustRange, robustShares } from "./robust";
import { variablesOf, type PlotRow, type Variable } from "./rows";

afterEach(async () => {
  await removeAll();
  vi.restoreAllMocks();
});

function rows(values: readonly (number | null)[]): readonly PlotRow[] {
  return values.map((loss, i) => ({ id: `job_${i}`, name: `run ${i}`, values: { loss } }));
}

function variable(of: readonly PlotRow[]): Variable {
  const found = variablesOf(of, [{ key: "loss", title: "loss", isMetric: true, better: "min" }])[0];
  if (!found) throw new Error("no variable");
  return { ...found, isLog: false };
}

test("one outlier does not set the scale of the colours: it has that of the end, and the others differ", () => {
  const all = rows([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1e9]);
  expect(robustRange(all, variable(all))).toEqual({ min: 0.1, max: 0.9, beyond: 1 });
  expect([...robustShares(all, variable(all))].map((share) => share.toFixed(2))).toEqual([
    ...["0.00", "0.13", "0.25", "0.38", "0.50", "0.63", "0.75", "0.88", "1.00", "1.00"],
  ]);
});

test("without an outlier all values are in the range, equal ones lie in its middle, and what has no value nowhere", () => {
  const all = rows([1, 2, 3, null]);
  expect(robustRange(all, variable(all))).toEqual({ min: 1, max: 3, beyond: 0 });
  expect([...robustShares(all, variable(all))]).toEqual([0, 0.5, 1, NaN]);
  const equal = rows([2, 2, 2, 2, 2, 2, 5]);
  expect([...robustShares(equal, variable(equal))]).toEqual([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1]);
});

function trial(number: number, value: number | string | null): TrialView {
  return { number, job_id: `job_${number}`, value, point: { lr: number } } as unknown as TrialView;
}

test("the best so far falls or rises with the mode, over the trials by their number; those without a value are left out", () => {
  const trials = [trial(3, 0.2), trial(0, 0.5), trial(1, "NaN"), trial(2, 0.7), trial(4, null)];
  const leads = (mode: "min" | "max"): readonly number[] =>
    trialPoints(trials, mode)
      .filter(({ isBest }) => isBest)
      .map(({ number }) => number);
  expect([leads("min"), leads("max")]).toEqual([
    [0, 3],
    [0, 2],
  ]);
  const sweep = { id: "swp_1", name: "lr", monitor: "val/loss", mode: "min", spec: { parameters: {} } };
  const marked: (string | null)[] = [];
  const host = show(BestSoFar, {
    ...{ sweep: sweep as unknown as SweepView, trials, marked: "job_2" },
    mark: (id: string | null) => marked.push(id),
  });
  expect(textOf(host.querySelector("h3"))).toBe("Best val/loss so far 0.2 of trial 3");
  expect(host.querySelectorAll("circle")).toHaveLength(3);
  expect(host.querySelectorAll("circle.lead")).toHaveLength(2);
  expect(textOf(host.querySelector("circle.marked"))).toBe("lr-2: 0.7");
  host.querySelector("circle")?.dispatchEvent(new PointerEvent("pointerenter"));
  expect(marked).toEqual(["job_0"]);
});
