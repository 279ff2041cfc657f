import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { flushSync } from "svelte";
import { click, removeAll, settled, show, textOf, textsOf } from "../testing";
import { Attempts } from "./attempts";
import ChartHead from "./ChartHead.svelte";
import type { MenuItem } from "../shell/menu";
import ChartTable from "./ChartTable.svelte";
import { Columns } from "./columns";
import Controls from "./Controls.svelte";
import { pointsAt } from "./crosshair";
import type { Legend } from "./legend";
import { Line } from "./line";
import Readout from "./Readout.svelte";
import SectionHead from "./SectionHead.svelte";
import { CurveStore } from "./store.svelte";
import { curve } from "./testing";
import { readView, type ChartsView } from "./view";

beforeEach(() => void vi.useFakeTimers());

afterEach(async () => {
  await removeAll();
  vi.useRealTimers();
});

const view = (query = ""): ChartsView => readView(new URLSearchParams(query));

function line(id: string, values: readonly number[]): Line {
  const columns = Columns.of(curve("loss", values), 0);
  const place = new Attempts().place(id, "step", 0);
  return new Line({
    jobId: id,
    job: id,
    name: id,
    key: "loss",
    part: null,
    colour: { slot: 1, dash: [] },
    columns,
    place,
  });
}

test("controls change the view; the smoothing once the slider rests", async () => {
  const changes: unknown[] = [];
  const host = show(Controls, {
    ...{ view: view("zoom=1~2"), change: (change: Partial<ChartsView>) => changes.push(change) },
    ...{ hasSeams: false, hasEpochs: false },
  });
  expect(textOf(host)).not.toContain("replaced points");
  expect([...host.querySelectorAll("option")].filter((option) => option.disabled).map(textOf)).toEqual([
    "epoch",
  ]);
  const slider = host.querySelector<HTMLInputElement>("input[type=range]");
  if (!slider) throw new Error("no slider");
  for (const value of ["0.7", "0.8", "0.9"]) {
    slider.value = value;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    await vi.advanceTimersByTimeAsync(50);
  }
  await vi.advanceTimersByTimeAsync(200);
  expect(changes).toEqual([{ smooth: 0.9 }]);
  [...host.querySelectorAll<HTMLElement>("button")].find((one) => one.textContent === "Reset zoom")?.click();
  expect(changes.at(-1)).toEqual({ zoom: null });
});

const PANEL = { prefix: "train/", name: "loss" };

function head(
  legend: readonly Legend[],
  point?: ReturnType<typeof pointsAt>[number],
  run = vi.fn(),
): HTMLElement {
  const items = (): readonly MenuItem[] => [
    { name: "Logarithmic", checked: true, run },
    { name: "Save CSV", run },
  ];
  return show(ChartHead, { panel: PANEL, marks: ["log"], legend, point, items });
}

test("the head of a chart has its newest value, and the crosshair's in place of it", () => {
  const legend = [{ id: "a", name: "", colour: null, value: "0.5000" }];
  const value = (point?: ReturnType<typeof pointsAt>[number]): string =>
    textOf(head(legend, point).querySelector(".value"));
  const [point] = pointsAt([line("a", [3, 2, 1])], 2, false);
  expect(value()).toBe("0.5000");
  expect(value(point)).toBe("2");
  expect(value(point && { ...point, shown: 2.5 })).toBe("~2.5 2");
});

test("the head says how the curves of each part are drawn", () => {
  const colour = { slot: 1, dash: [] };
  const parts = ["val", "train"].map((name) => ({ id: name, name, colour, value: "1" }));
  expect(textsOf(head(parts), ".one")).toEqual(["val 1", "train 1"]);
});

test("a chart's actions are in one menu, which keys open, walk and close", async () => {
  const run = vi.fn();
  const host = head([], undefined, run);
  const opener = host.querySelector<HTMLElement>("button");
  expect(host.querySelectorAll("button")).toHaveLength(1);
  const press = (key: string): void => {
    const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true });
    document.activeElement?.dispatchEvent(event);
    flushSync();
  };
  opener?.focus();
  press("ArrowDown");
  await vi.dynamicImportSettled();
  flushSync();
  expect(textsOf(host, "[role=menuitemcheckbox]")).toEqual(["Logarithmic"]);
  expect(host.querySelector("[aria-checked=true]")).toBe(document.activeElement);
  for (const key of ["ArrowUp", "ArrowDown", "End"]) press(key);
  expect(textOf(document.activeElement)).toBe("Save CSV");
  press("Escape");
  expect([host.querySelector("[role=menu]"), document.activeElement === opener]).toEqual([null, true]);
  click(host, "");
  await settled();
  click(host, "Save CSV");
  expect([run.mock.calls.length, host.querySelector("[role=menu]")]).toEqual([1, null]);
});

test("a section folds by its heading, and moves by keys", () => {
  const fold = vi.fn();
  const move = vi.fn();
  const host = show(SectionHead, {
    ...{ id: "time", title: "time", count: 3, isFolded: true, isMovable: true },
    ...{ fold, move, take: vi.fn() },
  });
  const button = host.querySelector("button");
  expect([textOf(button), button?.getAttribute("aria-expanded")]).toEqual(["time 3", "false"]);
  button?.click();
  for (const key of ["ArrowUp", "ArrowDown"])
    for (const altKey of [true, false])
      button?.dispatchEvent(new KeyboardEvent("keydown", { key, altKey, bubbles: true }));
  expect([fold.mock.calls.length, move.mock.calls]).toEqual([1, [[-1], [1]]]);
});

test("the readout lists the highest curve first", () => {
  const points = pointsAt([line("low", [1, 1]), line("high", [9, 9])], 2, false);
  const host = show(Readout, { crosshair: { x: 2, left: 10, points }, kind: "step", smooth: false });
  expect(textsOf(host, ".name")).toEqual(["high", "low"]);
  expect(textOf(host.querySelector("p"))).toBe("step 2");
});

test("a chart's table has a row for each step, and says how many it leaves out", () => {
  const lines = [line("a", [1, 2]), line("b", [3])];
  const host = show(ChartTable, { name: "loss", by: "step", store: new CurveStore(), lines: () => lines });
  expect(textsOf(host, "tbody tr:last-child td").slice(2)).toEqual(["2", ""]);
  const long = [
    line(
      "a",
      Array.from({ length: 500 }, (_, i) => i),
    ),
  ];
  expect(
    textOf(show(ChartTable, { name: "loss", by: "step", store: new CurveStore(), lines: () => long })),
  ).toContain("of 500 rows");
});
