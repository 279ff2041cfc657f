import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { removeAll, serve } from "../testing";
import { DeviceCurves, type DeviceUse } from "./devices";
import type { Section } from "./panels";
import { CurveStore } from "./store.svelte";
import { curve, keys } from "./testing";

const START = Date.parse("2026-01-01T00:00:00Z") / 1000;
const iso = (seconds: number): string => new Date((START + seconds) * 1000).toISOString();
const attempt = (number: number, from: number, to: number | null): DeviceUse["attempts"][number] => ({
  ...{ number, worker: "box", started_at: iso(from), ended_at: to === null ? null : iso(to) },
  devices: ["gpu-0", "gpu-1"].map((uuid) => ({ worker: "box", index: 0, uuid, name: null, node: 0 })),
});

/** A worker with three GPUs, of which the job holds two. */
function history(times: readonly number[]): unknown {
  const device = (uuid: string, utilization: number): unknown => ({
    ...{ uuid, index: 0, name: "", kind: "cuda" },
    columns: {
      time: times.map((time) => START + time),
      utilization: times.map(() => utilization),
      utilization_max: times.map(() => 1),
      memory_used: times.map(() => 2 ** 31),
      power_watts: times.map((_, i) => (i === 0 ? null : 300)),
      job_id: times.map(() => "job_a"),
    },
  });
  return { devices: [device("gpu-0", 0.5), device("gpu-1", 0.9), device("gpu-2", 0)] };
}

let opened: DeviceCurves | null = null;
const changed = vi.fn<(section: Section) => void>();
const names = (): readonly (readonly string[])[] =>
  changed.mock.calls.map(([{ panels }]) => panels.map(({ name }) => name));

beforeEach(() => void vi.useFakeTimers());
afterEach(async () => {
  opened?.close();
  vi.useRealTimers();
  await removeAll();
});

function store(): CurveStore {
  const found = new CurveStore();
  found.show([{ id: "job_a", name: "a", perEpoch: null, attempts: [] }]);
  found.takeKeys(keys({ job_a: ["loss"] }));
  // Steps 10, 20 and 30 of the first attempt; it went on at 20 in the second, which has come to 40.
  const logged = curve("loss", [3, 2, 1, 0]);
  const columns = { ...logged.columns, step: [10, 20, 30, 40], attempt: [1, 1, 2, 2] };
  found.put(
    "loss",
    [{ ...logged, columns: { ...columns, time: [10, 20, 120, 130].map((t) => START + t) } }],
    0,
  );
  return found;
}

function open(times: readonly number[], isOpen = false): DeviceCurves {
  changed.mockClear();
  opened = new DeviceCurves(
    store(),
    { attempts: [attempt(1, 0, 60), attempt(2, 100, null)], isOpen },
    changed,
  );
  serve(({ path }) => (path === "v1/workers" ? { data: [{ id: "wrk_1", name: "box" }] } : history(times)));
  return opened;
}

function rows(curves: DeviceCurves, key: string, by: "step" | "time"): unknown {
  const columns = curves.lines([key], "wall")[0]?.columns;
  return [...(columns?.[by].subarray(0, columns.length) ?? [])];
}

test("the devices that the job held are one curve: their mean, with the least and the greatest", async () => {
  const curves = open([5, 15, 70, 125]);
  await curves.open();
  expect(names()).toEqual([["GPU use, %", "GPU memory, GiB", "GPU power, W"]]);
  const [line] = curves.lines(["/devices/gpu"], "wall");
  expect([line?.columns.mean[0], line?.columns.min[0], line?.columns.max[0]]).toEqual([70, 50, 90]);
  expect(curves.lines(["/devices/memory"], "wall")[0]?.columns.mean[0]).toBe(2);
  expect(line?.hasTooFewPoints()).toBe(false);
});

test("times between attempts are left out, and each sample has the step that the job had come to", async () => {
  const curves = open([5, 15, 70, 110, 125, 140]);
  await curves.open();
  expect(rows(curves, "/devices/gpu", "time")).toEqual([5, 15, 110, 125, 140].map((time) => START + time));
  expect(rows(curves, "/devices/gpu", "step")).toEqual([0, 10, 20, 30, 40]);
  expect(rows(curves, "/devices/power", "time")).toEqual([15, 110, 125, 140].map((time) => START + time));
});

test("the devices of a job that hangs are shown up to now, long after its last metric", async () => {
  vi.setSystemTime((START + 5000) * 1000);
  const curves = open([125, 4990], true);
  await curves.open();
  expect(rows(curves, "/devices/gpu", "time")).toEqual([125, 4990].map((time) => START + time));
  expect(curves.range("wall")).toEqual({ min: START, max: START + 5000 });
  const ended = new DeviceCurves(store(), { attempts: [attempt(1, 0, 60)], isOpen: false }, changed);
  expect(ended.range("wall")).toEqual({ min: START, max: START + 60 });
});

test("without a device's history there are no charts, and no failure", async () => {
  const curves = open([]);
  await curves.open();
  serve(() => null);
  await curves.open();
  expect(changed).not.toHaveBeenCalled();
});

test("the charts of a job that has just begun come with its first samples, and more with more", async () => {
  const curves = open([], true);
  await curves.open();
  const answer = (times: readonly number[]): unknown =>
    serve(({ path }) => (path === "v1/workers" ? { data: [{ id: "wrk_1", name: "box" }] } : history(times)));
  answer([5]); // the first sample has no power
  await vi.advanceTimersByTimeAsync(15_000);
  expect(names()).toEqual([["GPU use, %", "GPU memory, GiB"]]);
  curves.want();
  answer([5, 15]);
  await vi.advanceTimersByTimeAsync(15_000);
  expect(names().at(-1)).toEqual(["GPU use, %", "GPU memory, GiB", "GPU power, W"]);
});

test("while the job runs and a chart can be seen, more is read every 15 seconds", async () => {
  const curves = open([5], true);
  await curves.open();
  const asked = serve(({ path }) => (path === "v1/workers" ? { data: [] } : history([5])));
  await vi.advanceTimersByTimeAsync(31_000);
  expect(asked).toHaveLength(0);
  const leave = curves.want();
  await vi.advanceTimersByTimeAsync(15_000);
  expect(asked).toHaveLength(1);
  leave();
  curves.close();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(asked).toHaveLength(1);
});
