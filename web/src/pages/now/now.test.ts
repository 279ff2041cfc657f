import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { DeviceView, PoolView, QueueEntry, WorkerView } from "../../api/wire";
import { removeAll, serve, settled, show, signIn, textOf, textsOf } from "../../testing";
import DeviceJob from "./DeviceJob.svelte";
import Ended from "./Ended.svelte";
import PoolJobs from "./PoolJobs.svelte";
import Queue from "./Queue.svelte";
import { AT, device, holder, job, openNow, worker } from "./testing";
import WorkerDevices from "./WorkerDevices.svelte";

beforeEach(() => {
  vi.useFakeTimers({ now: Date.parse(AT) });
  document.dispatchEvent(new Event("visibilitychange")); // the page's clock reads the time
});

afterEach(async () => {
  await removeAll();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("a worker's devices are rows: a job over its devices, what blocks one, a stretch of free ones", async () => {
  const history = { devices: [{ uuid: "u0", columns: { utilization: [0.5, 1] } }] };
  const asked = serve(() => history);
  const held = { job_id: "a", holder, utilization: 0.97 };
  const devices = [
    device(0, held),
    device(1, { ...held, utilization: 0.5 }),
    device(2, { blocked: "pid 4121, not ours" }),
  ];
  const all = worker(...devices, device(3), device(4), device(5));
  const host = show(WorkerDevices, { worker: all, jobs: new Map([["a", job("a")]]) });
  await settled();
  expect(textsOf(host, "tbody tr td:first-child")).toEqual(["0", "1", "2", "3–5"]);
  expect(host.querySelector("td.held")?.getAttribute("rowspan")).toBe("2");
  expect(textsOf(host, ".word")).toEqual(["pid 4121, not ours", "3 free"]);
  expect(textsOf(host, "td.used")).toEqual(["97%", "50%"]);
  expect(host.querySelectorAll("td.past svg")).toHaveLength(1);
  expect(asked.map(({ path }) => path)).toEqual(["v1/workers/wrk_1/history"]);
});

test("use and memory have columns where a device tells of them, in all tables alike", async () => {
  const memory = {
    memory_bytes: 80 * 2 ** 30,
    memory_used_bytes: 61 * 2 ** 30,
    utilization: 0.5,
    blocked: "x",
  };
  const heads = async (...workers: WorkerView[]): Promise<string[]> => {
    signIn("member", "jobs:read", "cluster:read");
    const { host } = await openNow(workers, []);
    const found = [...host.querySelectorAll("table")].map((table) => textsOf(table, "th").join());
    await removeAll();
    return found;
  };
  const silent = worker(device(0));
  const full = { ...worker(device(0, memory)), id: "wrk_2" };
  expect(await heads(silent)).toEqual(["Device,Held by"]);
  const all = "Device,Held by,Used,Last 15 minutes,Memory";
  expect(await heads(silent, full)).toEqual([all, all]);
  const host = show(WorkerDevices, { worker: full, jobs: new Map() });
  expect(textOf(host.querySelector("td:last-child"))).toContain("61.0 GiB / 80.0 GiB");
});

test("of many devices the neighbouring ones of a job share a row, and trouble stands above all", async () => {
  signIn("member", "jobs:read", "cluster:read");
  const eight = (more: (index: number) => Partial<DeviceView>): DeviceView[] =>
    Array.from({ length: 8 }, (_, index) => device(index, more(index)));
  const busy = worker(...eight((index) => ({ job_id: "a", holder, utilization: index === 3 ? 0.02 : 0.97 })));
  const partly = worker(...eight((index) => (index === 7 ? { blocked: "held by pid 4121" } : {})));
  const gone = { ...worker(...eight(() => ({}))), state: "lost" as const };
  const workers = [busy, { ...partly, id: "wrk_2", name: "box-b" }, { ...gone, id: "wrk_3", name: "box-c" }];
  const few = await openNow(workers.slice(0, 2), [], [job("a")]);
  expect(few.host.querySelectorAll("td.used")).toHaveLength(8);
  expect(few.host.querySelector("[aria-label=Problems]")).toBeNull();
  await removeAll();
  signIn("member", "jobs:read", "cluster:read");
  const { host } = await openNow(workers, [], [job("a")]);
  expect(textsOf(host, "[aria-label=Problems] li")).toEqual([
    "box-b device 7: held by pid 4121",
    "box-c lost, last seen just now",
  ]);
  expect(textsOf(host, "td.index")).toEqual(["0–7", "0–6", "7", "0–7"]);
  expect(textsOf(host, "td.used")).toEqual(["2–97%"]);
  expect(textsOf(host, ".word")).toEqual(["7 free", "held by pid 4121", "8 unreachable"]);
});

test("a worker says for which job its devices are reserved, and names it to those who may see it", () => {
  serve(() => ({ devices: [] }));
  const kept = [
    { kind: "cuda", owner: "ada", job_id: "a", name: "lr-batch-3" },
    { kind: "cpu", owner: "eve", job_id: null },
  ] as const;
  const host = show(WorkerDevices, { worker: { ...worker(device(0)), kept }, jobs: new Map() });
  expect(textsOf(host, ".kept")).toEqual([
    "GPUs reserved for lr-batch-3",
    "CPU slots reserved for a job of eve",
  ]);
  expect([...host.querySelectorAll<HTMLAnchorElement>(".kept a")].map((link) => link.pathname)).toEqual([
    "/jobs/a",
  ]);
  const one = show(WorkerDevices, {
    worker: { ...worker(device(0)), kept: kept.slice(0, 1) },
    jobs: new Map(),
  });
  expect(textsOf(one, ".kept")).toEqual(["Reserved for lr-batch-3"]);
  expect(
    show(WorkerDevices, { worker: worker(device(0)), jobs: new Map() }).querySelector(".kept"),
  ).toBeNull();
});

test("the history is read again every 15 seconds, while the tab can be seen, until the worker goes", async () => {
  const asked = serve(() => ({ devices: [] }));
  show(WorkerDevices, { worker: worker(device(0)), jobs: new Map() });
  await vi.advanceTimersByTimeAsync(31_000);
  expect(asked).toHaveLength(3);
  await removeAll();
  await vi.advanceTimersByTimeAsync(31_000);
  expect(asked).toHaveLength(3);
});

test("a device says whose job holds it: its progress, or for how long", () => {
  const held = { jobId: "a", holder, span: 1 };
  const progress = { step: 5, fraction: 0.36, eta_seconds: 60 };
  const known = show(DeviceJob, { held, job: job("a", { progress }) });
  expect(textOf(known)).toMatch(/job a ada 36% .* left$/);
  expect(known.querySelector("a")?.pathname).toBe("/jobs/a");
  const hidden = show(DeviceJob, { held: { ...held, jobId: null }, job: null });
  expect([textOf(hidden), hidden.querySelector("a")]).toEqual(["running a private job ada for 0s", null]);
});

function entry(changes: Record<string, unknown>): QueueEntry {
  const resources = { device: "cuda", nodes: 1, devices_per_node: 2, min_memory_gb: 24 };
  return {
    ...{ position: 1, job_id: "a", name: "digits", owner: "ada", created_at: AT, resources },
    ...{ reason: { message: "needs 2; 1 is free" }, not_before: null },
    ...changes,
  } as unknown as QueueEntry;
}

test("a waiting job is one line: what it waits for, and under the pointer all else", () => {
  const resources = { device: "cuda", nodes: 1, devices_per_node: 2, min_memory_gb: null };
  const busy = {
    code: "devices_busy",
    message: "needs 2 GPUs on box-a; 1 is free, bob-hang holds the other",
  };
  const later = new Date(Date.parse(AT) + 3_600_000).toISOString();
  const entries = [
    entry({ resources, reason: busy }),
    entry({ position: 2, job_id: null, not_before: later }),
    entry({ position: 3 }),
  ];
  const host = show(Queue, { entries, hasMore: true });
  expect(textsOf(host, ".need")).toEqual(["2 GPUs", "2 GPUs of 24 GiB", "2 GPUs of 24 GiB"]);
  const [named, failing, plain] = textsOf(host, ".why");
  expect([named, plain]).toEqual(["1 is free, bob-hang holds the other", "1 is free"]);
  expect(failing).toMatch(/^retries in /);
  expect(host.querySelector("li")?.title).toBe(
    "Of ada.\nNeeds 2 GPUs on box-a; 1 is free, bob-hang holds the other.",
  );
  expect(textsOf(host, "a")).toEqual(["digits", "digits", "All queued jobs"]);
  expect(textOf(host.querySelector(".name"))).toBe("a job of ada");
});

test("a job that no worker can ever run is red in the queue", () => {
  const never = entry({
    position: 2,
    reason: { code: "too_big", message: "needs 8 GPUs; the largest worker has 2" },
  });
  const host = show(Queue, { entries: [entry({}), never], hasMore: false });
  expect(textsOf(host, ".never")).toEqual(["no worker can run it"]);
});

test("the queue says how many wait, also beyond those that were read", async () => {
  signIn("member", "jobs:read", "cluster:read");
  const { host } = await openNow([worker(device(0))], [], [], [], [entry({})], 1_234);
  expect(textOf(host.querySelector("#queue"))).toBe("Queue 1,234");
  expect(document.title).toContain("1234 waiting");
});

test("the queue is in the service's order, with what each job asks of the host and the reason of one over its quota", () => {
  const resources = {
    device: "cuda",
    nodes: 1,
    devices_per_node: 1,
    gpu: ["H100", "L40S"],
    cpus: 8,
    memory_gb: 32,
  };
  const over = { reason: { code: "quota", message: "bob may run 1 job at once and runs 1 (quota)" } };
  const entries = [
    entry({
      reason: { message: "needs 1 GPU (H100 or L40S), 8 CPUs and 32 GiB of memory; none is free" },
      resources,
    }),
    entry({ position: 2, owner: "bob", priority: 9, resources, ...over }),
    entry({ position: 3, job_id: null, resources: { ...resources, cpus: 1 }, reason: null }),
  ];
  const host = show(Queue, { entries, hasMore: false });
  expect(textsOf(host, ".position")).toEqual(["1", "2", "3"]);
  expect(textsOf(host, ".need")).toEqual(["1 GPU", "1 GPU", "1 GPU"]);
  const whole = [...host.querySelectorAll<HTMLElement>("li")].map(({ title }) => title.split("\n"));
  expect(whole[0]).toEqual([
    "Of ada.",
    "Needs 1 GPU (H100 or L40S), 8 CPUs and 32 GiB of memory; none is free.",
  ]);
  expect(whole[1]?.[1]).toBe("Requests H100 or L40S, 8 CPUs, 32 GiB of memory.");
  expect(textsOf(host, ".why")).toEqual(["none is free", "bob may run 1 job at once and runs 1 (quota)", ""]);
});

test("a waiting job says when it is expected to start, also a private one, once that is known", () => {
  const at = (minute: number): string => new Date(2025, 11, 31, 14, minute).toISOString();
  vi.setSystemTime(at(0));
  const times = { expected: at(20), low: at(10), high: at(40), made_at: at(0), held: 158, of: 200 };
  const far = { ...times, expected: null, high: null };
  const entries = [
    entry({ estimate: times }),
    entry({ position: 2, job_id: null, estimate: far }),
    entry({ position: 3, estimate: null }),
  ];
  const host = show(Queue, { entries, hasMore: false });
  expect(textsOf(host, ".starts")).toEqual(["14:10–14:40", "after 14:10", ""]);
  expect(host.querySelector("li")?.title).toContain(
    "Starts between 14:10 and 14:40; 79% of the last 200 estimates were right.",
  );
});

test("new estimates are read while somebody waits", async () => {
  signIn("member", "jobs:read", "cluster:read");
  const { asked } = await openNow([worker(device(0))], []);
  await vi.advanceTimersByTimeAsync(61_000);
  expect(asked.filter(({ path }) => path === "v1/queue")).toHaveLength(1);
  await removeAll();
  signIn("member", "jobs:read", "cluster:read");
  const other = await openNow([worker(device(0))], [], [], [], [entry({})]);
  await vi.advanceTimersByTimeAsync(61_000);
  expect(other.asked.filter(({ path }) => path === "v1/queue")).toHaveLength(2);
});

test("what ended says why it failed, or its best value", () => {
  const best = { metric: "val/iou", value: 0.713 };
  const error = { message: "all of it" };
  const host = show(Ended, { jobs: [job("a", { best }), job("b", { error, state: "failed" })] });
  expect(textsOf(host, ".what")).toEqual(["val/iou 0.713", "why"]);
});

const pool: PoolView = {
  ...({
    engine: "slurm",
    partition: "main",
    kind: "cuda",
    state: "up",
    ahead: 10,
    waiting: 3,
    running: 1,
  } as const),
  nodes: { count: 2, devices: 4, gpus: ["a100"] },
  rules: { accounts: [], qos: [], constraints: [], reservations: [] },
};

test("a pool says what it has, why nothing starts there, and which jobs run on which nodes", () => {
  const own: WorkerView = { ...worker(), id: "wrk_2", name: "gpu", state: "draining", pool };
  const held = [0, 1].map((node) => ({ worker: "wrk_2", index: 0, node, host: `n${node}` }));
  const running = job("a", { devices: held });
  const jobs = new Map([
    ["a", running],
    ["b", job("b", { devices: [{ worker: "wrk_1", index: 0, node: 0, host: null }] })],
  ]);
  const obstacle = "Slurm does not answer";
  const host = show(PoolJobs, { worker: own, pool: { ...pool, obstacle }, jobs });
  expect(textOf(host.querySelector("h3"))).toBe(
    "gpu draining partition main, up: 2 nodes with 4 GPUs (a100) each",
  );
  expect(textOf(host.querySelector("p.failure"))).toBe(obstacle);
  expect(textsOf(host, ".place")).toEqual(["n0:0 n1:0"]);
  expect(textsOf(host, "a")).toEqual(["gpu", "job a"]);
  expect(textsOf(host, "p.muted")).toEqual(["1 running, 3 waiting in Slurm"]);
});

test("the floor shows pools, and in Slurm's queue the jobs that wait there with Slurm's words", async () => {
  signIn("member", "jobs:read", "cluster:read");
  const reason = { code: "waiting_in_slurm", message: "Slurm: Priority", since: AT };
  const waits = job("a", { state: "starting", status_reason: reason });
  const { host } = await openNow([{ ...worker(), id: "wrk_2", name: "gpu", pool }], [], [waits, job("b")]);
  expect(textOf(host)).not.toContain("No worker has announced a device");
  expect(textsOf(host, "#cluster .figure")).toEqual(["1"]);
  expect(textsOf(host, "[aria-labelledby=cluster] li p")).toEqual(["ada. Slurm: Priority"]);
  expect(document.title).toContain("1 running, 1 waiting");
});

test("the floor counts its devices, and reads again only the lists that have changed", async () => {
  signIn("member", "jobs:read", "jobs:write", "cluster:read");
  const { host, asked, tell } = await openNow([worker(device(0, { holder }), device(1))], [job("a")]);
  expect(textOf(host.querySelector("#floor"))).toBe("Devices 1 of 2 in use");
  expect(textOf(host.querySelector("#ended"))).toBe("Ended today 1");
  await vi.advanceTimersByTimeAsync(2000);
  const before = asked.length;
  tell({ kind: "changed", topic: "queue" });
  await vi.advanceTimersByTimeAsync(2000);
  expect(asked.slice(before).map(({ path }) => path)).toEqual(["v1/queue"]);
});

test("a token for jobs alone asks for nothing of the cluster", async () => {
  signIn("member", "jobs:read");
  const { host, asked, watched } = await openNow([], []);
  expect(new Set(asked.map(({ path }) => path))).toEqual(new Set(["v1/jobs"]));
  expect(watched).toEqual({ topics: ["jobs"] });
  expect(textOf(host)).toContain("Your token cannot see workers");
});

test("a running job shows the monitored value with its small curve, and a guest says so", async () => {
  signIn("member", "jobs:read", "cluster:read");
  const running = job("a", {
    best: { metric: "val/iou", value: 0.7, epoch: 1, step: 9 },
    metrics: { "train/loss": 0.5, "val/iou": 0.68 },
  });
  const held = device(0, { job_id: "a", utilization: 0.9, holder: { ...holder, guest: true } });
  const curve = { job_id: "a", key: "val/iou", columns: { mean: [0.1, 0.5, 0.68] } };
  const { host, asked } = await openNow(
    [worker(held), { ...worker(held), id: "wrk_2" }],
    [],
    [running],
    [curve],
  );
  await vi.advanceTimersByTimeAsync(1_100);
  await settled();
  expect(textOf(host.querySelector(".metric"))).toBe("val/iou 0.68");
  expect(host.querySelector(".metric svg")?.getAttribute("aria-label")).toBe("val/iou of job a");
  expect(textOf(host.querySelector(".guest"))).toBe("backfill");
  expect(asked.find(({ path }) => path === "v1/metrics")?.query.getAll("key")).toEqual(["val/iou"]);
  expect(textsOf(host, "th .head"), "the first table alone shows its heads").toEqual([
    "Device",
    "Held by",
    "Used",
    "Last 15 minutes",
  ]);
});

test("paused jobs have a list, which one leaves that goes on", async () => {
  signIn("member", "jobs:read", "cluster:read");
  const reason = { code: "paused", message: "paused by ada", since: AT };
  const paused = job("p", { state: "paused", progress: { step: 5, fraction: 0.4 }, status_reason: reason });
  const { host, tell } = await openNow([worker(device(0))], [], [paused]);
  expect(textOf(host.querySelector("#paused"))).toBe("Paused 1");
  expect(textsOf(host, "[aria-labelledby=paused] li")).toEqual(["paused job p ada, at 40% 0s"]);
  tell({ kind: "job", job: { ...paused, state: "queued", version: 2 } });
  await settled();
  expect(host.querySelector("#paused")).toBeNull();
});

test("after the first job that ended, and while nothing else is there, the floor says what comes next", async () => {
  signIn("member", "jobs:read", "jobs:write", "cluster:read");
  const done = job("a", { state: "succeeded", finished_at: AT });
  const { host } = await openNow([worker(device(0))], [done]);
  const next = host.querySelector("[aria-labelledby=next]");
  expect(textOf(next?.querySelector("p"))).toBe("job a succeeded. See its curves and its checkpoints.");
  expect(textsOf(host, "dt")[0]).toBe("torchyard download a --best");
  for (const [ended, others] of [
    [[done, { ...done, id: "b" }], []],
    [[done], [job("c")]],
    [[done], [job("c", { state: "paused" })]],
  ] as const) {
    await removeAll();
    signIn("member", "jobs:read", "jobs:write", "cluster:read");
    const other = await openNow([worker(device(0))], ended, others);
    expect(other.host.querySelector("[aria-labelledby=next]")).toBeNull();
  }
  await removeAll();
  signIn("viewer", "jobs:read", "cluster:read");
  expect((await openNow([worker(device(0))], [done])).host.querySelector("#next")).toBeNull();
});

test("a first job that failed leads to its page, and offers no download", async () => {
  signIn("member", "jobs:read", "jobs:write", "cluster:read");
  const { host } = await openNow([worker(device(0))], [job("a", { state: "failed", finished_at: AT })]);
  expect(textOf(host.querySelector("[aria-labelledby=next] p"))).toContain("failed. Its page says why");
  expect(textsOf(host, "dt").join()).not.toContain("download");
});
