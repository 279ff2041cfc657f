import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { removeAll, show, textOf, textsOf } from "../testing";
import { Attempts } from "./attempts";
import ChartHead from "./ChartHead.svelte";
import ChartTable from "./ChartTable.svelte";
import { Columns } from "./columns";
import Controls from "./Controls.svelte";
import { pointsAt } from "./crosshair";
import { Line } from "./line";
import Readout from "./Readout.svelte";
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
  return new Line(id, id, { slot: 1, dash: [] }, columns, new Attempts().place(id, "step", 0));
}

test("controls change the view; the smoothing once the slider rests", async () => {
  const changes: unknown[] = [];
  const host = show(Controls, {
    ...{ view: view("zoom=1~2"), change: (change: Partial<ChartsView>) => changes.push(change) },
    ...{ hasSeams: false, hasEpochs: false },
  });
  expect(textOf(host)).not.toContain("discarded");
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
  host.querySelector<HTMLElement>("button")?.click();
  expect(changes.at(-1)).toEqual({ zoom: null });
});

test("the head of a chart has its newest value, and the crosshair's in place of it", () => {
  const head = (point: ReturnType<typeof pointsAt>[number] | undefined): string =>
    textOf(
      show(ChartHead, {
        ...{ name: "train/loss", view: view("wide=train/loss"), change: () => undefined, isLog: true },
        ...{ isTable: false, latest: "0.5000", point, toggleTable: () => undefined },
        ...{ saveCsv: () => undefined, savePicture: () => undefined },
      }).querySelector(".value"),
    );
  const [point] = pointsAt([line("a", [3, 2, 1])], 2, false);
  expect(head(undefined)).toBe("0.5000");
  expect(head(point)).toBe("2");
  expect(head(point && { ...point, shown: 2.5 })).toBe("~2.500 2");
});

test("the readout lists the highest curve first", () => {
  const points = pointsAt([line("low", [1, 1]), line("high", [9, 9])], 2, false);
  const host = show(Readout, { crosshair: { x: 2, left: 10, points }, kind: "step", smooth: false });
  expect(textsOf(host, ".name")).toEqual(["high", "low"]);
  expect(textOf(host.querySelector("p"))).toBe("step 2");
});

test("a chart's table has a row for each step, and says how many it leaves out", () => {
  const lines = [line("a", [1, 2]), line("b", [3])];
  const host = show(ChartTable, { name: "loss", store: new CurveStore(), lines: () => lines });
  expect(textsOf(host, "tbody tr:last-child td").slice(2)).toEqual(["2", ""]);
  const long = [
    line(
      "a",
      Array.from({ length: 500 }, (_, i) => i),
    ),
  ];
  expect(textOf(show(ChartTable, { name: "loss", store: new CurveStore(), lines: () => long }))).toContain(
    "of 500 rows",
  );
});
