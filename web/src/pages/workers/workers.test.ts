import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { DeviceView, PoolView, WorkerView } from "../../api/wire";
import { live } from "../../live/live.svelte";
import { href, navigate, route } from "../../router.svelte";
import { pending, undo } from "../../shell/undo.svelte";
import { changesOf, click, removeAll, serve, settled, show, signIn, textOf, textsOf } from "../../testing";
import { heldBy, pathOf, place, rowAt, ticks, type Columns } from "./lanes";
import { releaseOf } from "./quarantine";
import { usedNow } from "./readout";
import Worker from "./Worker.svelte";
import Workers from "./Workers.svelte";

const AT = "2026-01-01T00:00:00.000Z";
const NOW_S = Date.parse(AT) / 1000;
const GIB = 2 ** 30;

function device(index: number, more: Partial<DeviceView> = {}): DeviceView {
  return { index, uuid: `u${index}`, name: "H100", kind: "cuda", processes: [], returning: false, ...more };
}

function worker(devices: readonly DeviceView[], more: Partial<WorkerView> = {}): WorkerView {
  return {
    ...{ id: "wrk_1", name: "box-a", state: "ready", started_at: AT, seen_at: AT, kept: [], remote: false },
    devices: [...devices],
    ...more,
  };
}

function columns(more: Partial<Columns> = {}): Columns {
  const time = [NOW_S - 600, NOW_S - 595, NOW_S - 590];
  return {
    time,
    utilization: [0.5, 1, null],
    utilization_max: [0.6, 1, null],
    memory_used: [GIB, 2 * GIB, null],
    power_watts: [null, 280.4, null],
    job_id: ["job_a", "job_a", null],
    ...more,
  } as Columns;
}

const pool: PoolView = {
  ...{ engine: "slurm", partition: "main", kind: "cuda", max_time_s: 86_400, ahead: 10, state: "up" },
  nodes: { count: 3, devices: 4, gpus: ["a100"], cpus: 64, memory_gb: 512 },
  rules: { accounts: ["vision"], qos: [], constraints: [], reservations: [] },
  ...{ obstacle: null, waiting: 2, running: 1 },
};

beforeEach(() => {
  vi.useFakeTimers({ now: Date.parse(AT) });
  vi.spyOn(live, "watch").mockReturnValue(() => undefined);
  vi.stubGlobal("scrollTo", () => undefined);
});

afterEach(async () => {
  await removeAll();
  navigate(href(""));
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

async function openOne(shown: WorkerView, history = columns()): Promise<HTMLElement> {
  serve(({ path }) =>
    path.endsWith("/history")
      ? {
          worker_id: shown.id,
          resolution_seconds: 5,
          devices: shown.devices.map(({ uuid, index, name, kind }) => ({
            ...{ uuid, index, name, kind },
            columns: history,
          })),
          jobs: [{ id: "job_a", name: "digits", owner: "ada" }],
        }
      : shown,
  );
  const host = show(Worker, { id: shown.id });
  await vi.advanceTimersByTimeAsync(10);
  await settled();
  return host;
}

test("the list has the hosts with their devices, isolation and caches, and the pools apart", async () => {
  signIn("viewer", "cluster:read");
  const starts = {
    ...{ mode: "warm", why: "", forks: 3 },
    isolation: {
      level: "landlock",
      own_mounts: true,
      own_pids: false,
      filtered: true,
      lacks: ["pid namespaces"],
    },
    caches: { packages_bytes: GIB, total_bytes: 3 * GIB, limit_bytes: 20 * GIB },
    troubles: [],
    environments: [],
  } as const;
  const holder = { owner: "ada", state: "running", since: AT, guest: false } as const;
  const devices = [
    device(0, { holder }),
    device(1, { blocked: "GPU 1 is in quarantine until 12:00 UTC: x" }),
  ];
  const one = worker(devices, { starts } as Partial<WorkerView>);
  const both = [one, worker([], { id: "wrk_2", name: "gpu", pool })];
  serve(({ path }) => ({ data: path === "v1/workers" ? both : [], has_more: false, next: null }));
  const host = show(Workers, {});
  await settled();
  const [hosts, pools] = [...host.querySelectorAll("tbody")];
  expect(textsOf(hosts as Element, "td")).toEqual([
    "ready",
    "box-a",
    "2 × H100",
    "1",
    "0",
    "1",
    "",
    "warm",
    "landlock*",
    "3.0 GiB",
    "0s",
  ]);
  expect(textsOf(pools as Element, "td")).toEqual(["ready", "gpu", "main, up", "3", "4", "1", "2", ""]);
  expect(host.querySelector("a")?.pathname).toBe("/workers/wrk_1");
});

test("a worker that drains is drained once no job runs there, as the command line says", async () => {
  signIn("viewer", "cluster:read");
  const state = "draining";
  const idle = { ...pool, waiting: 0, running: 0 };
  const all = [
    worker([device(0, { job_id: "job_a" }), device(1)], { state }),
    worker([device(0), device(1)], { state, id: "wrk_2" }),
    worker([], { state, id: "wrk_3", pool }),
    worker([], { state, id: "wrk_4", pool: idle }),
  ];
  serve(({ path }) => ({ data: path === "v1/workers" ? all : [], has_more: false, next: null }));
  const host = show(Workers, {});
  await settled();
  const states = textsOf(host, "tbody td:first-child");
  expect(states).toEqual(["draining", "drained", "draining", "drained"]);
});

test("without a worker the list says what brings one, and without the scope it asks for nothing", async () => {
  signIn("viewer", "cluster:read");
  serve(() => ({ data: [], has_more: false, next: null }));
  const host = show(Workers, {});
  await settled();
  expect(textOf(host.querySelector("code"))).toBe("torchyard up");
  await removeAll();
  signIn("member", "jobs:read");
  const asked = serve(() => null);
  expect(textOf(show(Workers, {}))).toContain("lacks the scope cluster:read");
  await settled();
  expect(asked).toEqual([]);
});

test("a worker shows how each device was used, who held it, and the values at the crosshair", async () => {
  signIn("viewer", "cluster:read");
  const host = await openOne(
    worker([device(0, { memory_bytes: 80 * GIB, memory_used_bytes: 0, utilization: 0 })]),
  );
  expect(textsOf(host, ".lane text")).toHaveLength(1);
  expect(host.querySelector<SVGAElement>(".lane a")?.getAttribute("href")).toBe("/jobs/job_a");
  expect(host.querySelector(".lane .used")?.getAttribute("d")).toMatch(/^M.*Z$/);
  expect(textOf(host.querySelector(".readout"))).toBe("0% 0 B");
  const axis = host.querySelector<HTMLElement>("[role=slider]");
  for (let back = 0; back < 119; back++)
    axis?.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft", bubbles: true, cancelable: true }));
  await settled();
  expect(textOf(host.querySelector(".readout"))).toBe("100% 2.0 GiB 280 W digits");
  axis?.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
  await settled();
  expect(host.querySelector(".cross")).toBeNull();
});

test("another span is in the address and is asked for", async () => {
  signIn("viewer", "cluster:read");
  navigate(href("workers/wrk_1"));
  const shown = worker([device(0)]);
  const asked = serve(({ path }) =>
    path.endsWith("/history") ? { resolution_seconds: 60, devices: [], jobs: [] } : shown,
  );
  const host = show(Worker, { id: "wrk_1" });
  await settled();
  click(host, "30 days");
  await vi.advanceTimersByTimeAsync(2_000);
  await settled();
  expect(route().query.get("span")).toBe("30d");
  const last = asked.filter(({ path }) => path.endsWith("/history")).at(-1)?.query;
  expect(Date.parse(last?.get("from") ?? "")).toBe(Date.parse(AT) - 30 * 86_400_000);
});

test("the table has what the lanes show", async () => {
  signIn("viewer", "cluster:read");
  const host = await openOne(worker([device(0, { memory_bytes: 80 * GIB })]));
  host.querySelector<HTMLDetailsElement>("details")?.setAttribute("open", "");
  host.querySelector("details")?.dispatchEvent(new Event("toggle"));
  await settled();
  const rows = [...host.querySelectorAll("details tbody tr")].map((row) => textsOf(row, "td").slice(1));
  expect(rows).toEqual([
    ["—", "—", "—", "—", ""],
    ["100%", "100%", "2.0 GiB", "280 W", "digits"],
    ["50%", "60%", "1.0 GiB", "—", "digits"],
  ]);
});

test("only who may drains, which can be undone, and lets it take jobs again", async () => {
  signIn("member", "cluster:read");
  expect(textsOf(await openOne(worker([device(0)])), "button")).not.toContain("Drain");
  await removeAll();
  signIn("operator", "cluster:read", "cluster:write");
  const host = await openOne(worker([device(0)]));
  const asked = serve(({ path, query }) => {
    if (query.has("dry_run")) return { total: 1, jobs: [{ name: "unet" }], message: "nothing is lost yet" };
    return path.endsWith("/history") ? { devices: [] } : worker([], { state: "draining" });
  });
  click(host, "Drain");
  await settled();
  expect(pending()[0]?.sentence).toContain("its jobs save a checkpoint");
  expect(pending()[0]?.note()).toBe("unet: nothing is lost yet.");
  undo();
  await vi.advanceTimersByTimeAsync(6_000);
  expect(changesOf(asked)).toEqual([]);
  await settled();
  click(host, "Accept jobs again");
  await settled();
  expect(changesOf(asked).map(({ path }) => path)).toEqual(["v1/workers/wrk_1/undrain"]);
});

test("a device in quarantine says why, and what releases it", async () => {
  signIn("viewer", "cluster:read");
  const blocked =
    "GPU 0 is in quarantine until 12:10 UTC: it failed under job_1 (the driver reported XID 79)";
  const host = await openOne(worker([device(0, { blocked })]));
  expect(textOf(host.querySelector(".blocked"))).toContain(
    `${blocked} Available after 10 minutes without a fault`,
  );
  expect(textOf(host.querySelector(".readout"))).toBe("not offered");
  const kept = "GPU 0 is in quarantine: 3.0 GiB are still in use after job_1 ended; checked again every 5 s";
  expect(releaseOf(device(0, { blocked: kept }))).toContain("when this memory is free");
  expect(releaseOf(device(0, { blocked: kept, returning: true }))).toBeNull();
  expect(releaseOf(device(0))).toBeNull();
});

test("a pool says what its nodes have and what jobs may ask for", async () => {
  signIn("viewer", "cluster:read");
  const asked = serve(() => worker([], { pool, name: "gpu" }));
  const host = show(Worker, { id: "wrk_1" });
  await settled();
  const said = textOf(host.querySelector("dl"));
  expect(said).toContain("3 with 4 GPUs (a100) , 64 CPUs, 512 GiB of memory each");
  expect(said).toContain("accounts vision");
  expect(said).not.toContain("qos");
  expect(asked.map(({ path }) => path)).toEqual(["v1/workers/wrk_1"]);
});

test("a job that held a device without a break is one band, and one that came back is another", () => {
  const time = [0, 5, 10, 30, 35];
  const jobs = ["a", "a", "b", "b", null];
  expect(heldBy(columns({ time, job_id: jobs }), 5)).toEqual([
    { jobId: "a", from: 0, to: 10 },
    { jobId: "b", from: 10, to: 15 },
    { jobId: "b", from: 30, to: 35 },
  ]);
});

test("a line is broken where nothing is known, and a filled one reaches the ground", () => {
  const shape = { window: { begins: 0, ends: 20 }, width: 20, height: 11, resolution: 5 };
  const shares = [1, null, 0, 0.5];
  expect(pathOf([0, 5, 10, 15], shares, { ...shape, isFilled: false })).toBe("M0 0.5H5M10 10.5H15V5.5H20");
  expect(pathOf([0, 5], [1, null], { ...shape, isFilled: true })).toBe("M0 11V0.5H5V11Z");
  expect(pathOf([0, 15], [1, 1], { ...shape, isFilled: false })).toBe("M0 0.5H5M15 0.5H20");
});

test("a time is in the slot that it lies in, and in none of a gap", () => {
  expect([0, 4, 5, 12, 29, 30].map((time) => rowAt([0, 5, 10, 25], time, 5))).toEqual([0, 0, 1, 2, 3, -1]);
  expect(rowAt([10], 20, 5)).toBe(-1);
  expect(place(15, { begins: 10, ends: 20 }, 200)).toBe(100);
});

test("an axis has a few round times", () => {
  const hour = ticks({ begins: 1_000_000_100, ends: 1_000_003_700 }, 6);
  expect(hour.every((time) => time % 600 === 0)).toBe(true);
  expect([hour.length, ticks({ begins: 0, ends: 30 * 86_400 }, 7).length]).toEqual([6, 7]);
});

test("a device that another's private job holds says whose, though nothing is known of its use", () => {
  const holder = { owner: "eve", state: "running", since: AT, guest: false, name: null } as const;
  expect(usedNow(device(0, { holder }))).toEqual({ figures: "", job: "a private job of eve" });
  expect(usedNow(device(0))).toEqual({ figures: "free", job: "" });
});
