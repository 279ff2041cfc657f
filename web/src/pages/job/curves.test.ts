/** A job's curves, as those of its devices are shown to who may see them. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { AttemptView, JobView } from "../../api/wire";
import { keys } from "../../charts/testing";
import { removeAll, serve, settled, show, signIn, textsOf } from "../../testing";
import Curves from "./Curves.svelte";

const TIME = "2026-01-01T00:00:00Z";
const JOB = {
  ...{ id: "job_a", name: "a", state: "succeeded", finished_at: TIME, progress: {} },
  spec: { checkpoint: { monitor: "val/loss" } },
} as unknown as JobView;
const ATTEMPT = {
  ...{ number: 1, worker: "box", started_at: TIME, ended_at: TIME, start_step: 0 },
  devices: [{ uuid: "gpu-0" }],
} as unknown as AttemptView;
const COLUMNS = {
  time: [Date.parse(TIME) / 1000],
  utilization: [0.5],
  memory_used: [null],
  power_watts: [null],
};

beforeEach(() => {
  vi.stubGlobal(
    "IntersectionObserver",
    class {
      observe(): void {}
      disconnect(): void {}
    },
  );
});

afterEach(async () => {
  await removeAll();
  vi.unstubAllGlobals();
});

async function open(): Promise<{ sections: readonly string[]; paths: readonly string[] }> {
  const asked = serve(({ path }) => {
    if (path === "v1/metrics") return { jobs: keys({ job_a: ["train/loss"] }), series: [], max_points: 1500 };
    if (path === "v1/workers") return { data: [{ id: "wrk_1", name: "box" }] };
    return { devices: [{ uuid: "gpu-0", kind: "cuda", columns: COLUMNS }] };
  });
  const host = show(Curves, { job: JOB, attempts: [ATTEMPT], readAttempts: () => Promise.resolve() });
  await vi.dynamicImportSettled();
  await settled();
  return { sections: textsOf(host, "h2"), paths: asked.map(({ path }) => path) };
}

test("the devices of a job are charts of the job, for who may see workers", async () => {
  signIn("member", "jobs:read", "cluster:read");
  const { sections, paths } = await open();
  expect(sections.at(-1)).toBe("devices 1");
  expect(paths).toContain("v1/workers/wrk_1/history");
});

test("who may not see workers has the curves alone, and asks for nothing else", async () => {
  signIn("member", "jobs:read");
  const { sections, paths } = await open();
  expect(sections).toEqual(["Monitored metric 1"]);
  expect(paths.filter((path) => path.startsWith("v1/workers"))).toEqual([]);
});
