import { expect, test } from "vitest";
import type { DeviceView, WorkerView } from "../../api/wire";
import { deviceRows, meanOf, tally } from "./deviceRows";

function device(index: number, more: Partial<DeviceView> = {}): DeviceView {
  return { index, uuid: `u${index}`, name: "GPU", kind: "cuda", processes: [], returning: false, ...more };
}

function worker(devices: DeviceView[]): WorkerView {
  const at = "2026-01-01T00:00:00Z";
  return {
    id: "wrk_1",
    name: "box-a",
    state: "ready",
    started_at: at,
    seen_at: at,
    devices,
    kept: [],
    remote: false,
  };
}

const holder = { owner: "ada", state: "running", since: "2026-01-01T00:00:00Z", guest: false } as const;

test("a job across neighbouring devices is one row of the job", () => {
  const rows = deviceRows(worker([device(1, { job_id: "a", holder }), device(0, { job_id: "a", holder })]));
  expect(rows.map((row) => row.kind === "held" && row.job?.span)).toEqual([2, undefined]);
});

test("a job on devices apart is named on each of them", () => {
  const devices = [device(0, { job_id: "a", holder }), device(1), device(2, { job_id: "a", holder })];
  expect(deviceRows(worker(devices)).map((row) => row.kind)).toEqual(["held", "free", "held"]);
});

test("another user's private job has a holder and no id", () => {
  const [first] = deviceRows(worker([device(0, { holder }), device(1, { holder })]));
  expect(first).toMatchObject({ kind: "held", job: { jobId: null, span: 2, holder: { owner: "ada" } } });
});

test("a long free stretch is one line, and blocked devices keep their own", () => {
  const devices = [
    device(0),
    device(1),
    device(2),
    device(3, { blocked: "not ours" }),
    device(4, { blocked: "x" }),
  ];
  expect(deviceRows(worker(devices))).toMatchObject([
    { kind: "free", first: 0, last: 2, count: 3 },
    { kind: "blocked" },
    { kind: "blocked" },
  ]);
});

test("a lost worker's devices count for nothing", () => {
  const lost = { ...worker([device(0, { holder })]), state: "lost" as const };
  expect(tally([lost, worker([device(0), device(1, { blocked: "x" })])])).toEqual({
    held: 0,
    blocked: 1,
    all: 2,
  });
});

test("the history of some devices is their mean, of what is known", () => {
  expect(meanOf([])).toEqual([]);
  expect(
    meanOf([
      [0, 0.5, null],
      [1, null, null],
    ]),
  ).toEqual([0.5, 0.5, null]);
});
