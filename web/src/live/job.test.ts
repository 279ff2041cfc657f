import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { JobSummary } from "../api/wire";
import { JobStore } from "./job.svelte";

const asked: string[] = [];
let held: ((answer: Response) => void)[];
let isHeld: boolean;
let status: number;
let store: JobStore;

const job = {
  id: "job_a",
  name: "unet",
  state: "running",
  attempt: 1,
  version: 3,
  position: 10,
  metrics: {},
};

function reported(changes: Record<string, unknown>): JobSummary {
  return { ...job, ...changes } as unknown as JobSummary;
}

function answer(path: string): Response {
  const body = path.endsWith("/attempts") ? { data: [{ number: 1, start_step: 0 }] } : job;
  return new Response(JSON.stringify(status === 200 ? body : { code: "x", detail: "no" }), { status });
}

/** Waits until all requests that follow from one another are answered. */
async function settled(): Promise<void> {
  for (let i = 0; i < 20; i++) await Promise.resolve();
}

beforeEach(() => {
  [asked.length, held, isHeld, status] = [0, [], false, 200];
  vi.stubGlobal("fetch", (target: string) => {
    const path = new URL(target).pathname;
    asked.push(path.replace("/v1/jobs/job_a", ""));
    return isHeld ? new Promise((found) => held.push(found)) : Promise.resolve(answer(path));
  });
  store = new JobStore("job_a");
});

afterEach(() => {
  store.close();
  vi.unstubAllGlobals();
});

test("opening reads the job and then its attempts, each once", async () => {
  await store.read();
  store.heard({ kind: "job", job: reported({ position: 11 }) });
  await settled();
  expect(asked).toEqual(["", "/attempts"]);
  expect([store.job?.name, store.attempts.length]).toEqual(["unet", 1]);
});

test("another state or attempt has the attempts read again, other changes do not", async () => {
  await store.read();
  await settled();
  store.heard({ kind: "job", job: reported({ version: 4, name: "new" }) });
  await settled();
  expect([store.job?.name, asked.length]).toEqual(["new", 2]);
  store.heard({ kind: "job", job: reported({ version: 5, attempt: 2 }) });
  await settled();
  expect(asked.slice(2)).toEqual(["/attempts"]);
});

test("all who ask for attempts while they are read share one more answer", async () => {
  isHeld = true;
  const first = store.readAttempts();
  await settled();
  const others = [store.readAttempts(), store.readAttempts()];
  await settled();
  expect(asked).toEqual(["/attempts"]);
  held[0]?.(answer("/attempts"));
  await first;
  await settled();
  expect(asked).toEqual(["/attempts", "/attempts"]);
  held[1]?.(answer("/attempts"));
  await Promise.all(others);
  expect(asked).toHaveLength(2);
});

test("after something was missed, job and attempts are read again, by one request at a time", async () => {
  await store.read();
  await settled();
  isHeld = true;
  for (let i = 0; i < 3; i++) store.heard({ kind: "changed", topic: "jobs" });
  expect(asked.slice(2)).toEqual([""]);
  held[0]?.(answer("/v1/jobs/job_a"));
  await settled();
  expect(asked.slice(2)).toEqual(["", "/attempts"]);
});

test("a job that cannot be read says why, until it can be", async () => {
  status = 404;
  await store.read();
  expect([store.failure?.status, store.job]).toEqual([404, null]);
  status = 200;
  await store.read();
  expect([store.failure, store.job?.name]).toEqual([null, "unet"]);
  store.heard({ kind: "deleted", jobId: "job_a" });
  expect(store.failure?.status).toBe(404);
});
