/** What opening a job asks of the service, with the stream that begins after it. */
import { flushSync, mount, unmount } from "svelte";
import { afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { live } from "../../live/live.svelte";
import { service } from "../../live/testing";
import { setQuery } from "../../router.svelte";
import Job from "./Job.svelte";

const asked: string[] = [];
let streams: ReturnType<typeof service>;
let page: Record<string, unknown>;

const job = {
  ...{ id: "job_a", name: "unet", state: "running", owner: "ada", attempt: 1, version: 3, position: 10 },
  ...{ created_at: "2026-01-01T00:00:00Z", metrics: {}, progress: { step: 0 } },
  ...{ spec: { resources: { nodes: 1, devices_per_node: 1 }, checkpoint: { monitor: "val/loss" } } },
  ...{ status_reason: { code: "running" }, devices: [], labels: {}, after: [] },
};
const attempt = {
  ...{ number: 1, worker: "box-a", devices: [{ index: 0 }], start_step: 0, ended_at: null, end_reason: null },
  ...{ started_at: "2026-01-01T00:00:00Z" },
};

function answer(path: string): unknown {
  if (path.endsWith("/attempts")) return { data: [attempt], has_more: false, next: null };
  if (path.endsWith("/advice")) return { severity: "info", headline: "", evidence: [], steps: [] };
  if (path.endsWith("/metrics")) return { jobs: [{ job_id: "job_a", position: 10, keys: [] }], series: [] };
  return path.endsWith("/job_a") ? job : { data: [], has_more: false, next: null, total: 0 };
}

/** Waits until no request, and no timer that begins one, is on its way. */
async function settled(): Promise<void> {
  for (let i = 0; i < 10; i++) {
    flushSync();
    await vi.advanceTimersByTimeAsync(100);
  }
}

// The parts are there at once: what is counted is what they read.
beforeAll(() =>
  Promise.all([
    import("./Curves.svelte"),
    import("./Logs.svelte"),
    import("./Checkpoints.svelte"),
    import("./Timeline.svelte"),
    import("./Spec.svelte"),
  ]),
);
beforeEach(() => {
  vi.useFakeTimers();
  streams = service();
  asked.length = 0;
  vi.stubGlobal("fetch", (target: string, init: RequestInit) => {
    const url = new URL(target);
    asked.push(url.pathname + url.search);
    if (url.pathname.endsWith("/stream")) return streams.request(target, init);
    return Promise.resolve(new Response(JSON.stringify(answer(url.pathname))));
  });
  live.start(() => undefined);
});

afterEach(async () => {
  await unmount(page);
  live.stop();
  setQuery({ tab: null });
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

const READS = {
  curves: ["/v1/metrics?job=job_a"],
  logs: ["/v1/jobs/job_a/logs?before=9007199254740991&limit=500"],
  checkpoints: ["/v1/jobs/job_a/checkpoints?limit=200"],
  timeline: ["/v1/jobs/job_a/events?limit=500"],
  spec: [],
};

test.each(Object.entries(READS))("opening a job at its %s reads nothing twice", async (tab, reads) => {
  setQuery({ tab });
  page = mount(Job, { target: document.body, props: { id: "job_a" } });
  await settled();
  const stream = await streams.next();
  await stream.send("ready", "");
  await stream.send("job", { ...job, position: 11 });
  await settled();
  expect(asked.toSorted()).toEqual(
    [
      "/v1/jobs/job_a",
      "/v1/jobs/job_a/advice",
      "/v1/jobs/job_a/attempts",
      "/v1/jobs?init_from=job_a&limit=5",
      "/v1/models?job=job_a&limit=5",
      "/v1/stream?job=job_a&after=job_a%3A10",
      ...reads,
    ].toSorted(),
  );
});

test("after a break of the stream, what is shown is read again", async () => {
  setQuery({ tab: "timeline" });
  page = mount(Job, { target: document.body, props: { id: "job_a" } });
  await settled();
  const first = await streams.next();
  await first.send("ready", "");
  await settled();
  const before = asked.length;
  await first.end();
  await settled();
  const second = await streams.next();
  await second.send("ready", "");
  await settled();
  expect(
    asked
      .slice(before)
      .filter((path) => !path.includes("stream"))
      .toSorted(),
  ).toEqual(["/v1/jobs/job_a", "/v1/jobs/job_a/attempts", "/v1/jobs/job_a/events?limit=500"]);
});

test("a job that failed comes with what happened, so that nothing moves", async () => {
  let advise: () => void = () => undefined;
  const plain = fetch;
  vi.stubGlobal("fetch", async (target: string, init: RequestInit) => {
    const { pathname } = new URL(target);
    if (pathname.endsWith("/advice")) await new Promise<void>((done) => (advise = done));
    if (!pathname.endsWith("/job_a")) return plain(target, init);
    return new Response(JSON.stringify({ ...job, state: "failed", error: { code: "user_error" } }));
  });
  page = mount(Job, { target: document.body, props: { id: "job_a" } });
  await settled();
  expect(document.querySelector("h1")).toBeNull();
  advise();
  await settled();
  expect(document.querySelector("h1")?.textContent).toBe("unet");
});
