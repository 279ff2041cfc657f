/** The page Now with answers of its own, for tests. */
import { vi } from "vitest";
import type { DeviceView, JobSummary, QueueEntry, WorkerView } from "../../api/wire";
import type { LiveEvent, Watch } from "../../live/events";
import { live } from "../../live/live.svelte";
import { serve, settled, show, type Asked } from "../../testing";
import Now from "./Now.svelte";

export const AT = "2026-01-01T00:00:00.000Z";
export const holder = { owner: "ada", state: "running", since: AT, guest: false } as const;

export function device(index: number, more: Partial<DeviceView> = {}): DeviceView {
  return { index, uuid: `u${index}`, name: "GPU", kind: "cuda", processes: [], returning: false, ...more };
}

export function worker(...devices: DeviceView[]): WorkerView {
  return {
    id: "wrk_1",
    name: "box-a",
    state: "ready",
    started_at: AT,
    seen_at: AT,
    devices,
    kept: [],
    remote: false,
  };
}

export function job(id: string, changes: Record<string, unknown> = {}): JobSummary {
  return {
    ...{ id, name: `job ${id}`, state: "running", owner: "ada", version: 1, position: 1, metrics: {} },
    ...{ progress: { step: 0 }, devices: [], created_at: AT, finished_at: AT, best: null, error: null },
    ...{ status_reason: { code: "x", message: "why" } },
    ...changes,
  } as unknown as JobSummary;
}

export interface Floor {
  readonly host: HTMLElement;
  readonly asked: readonly Asked[];
  readonly watched: Watch;
  readonly tell: (event: LiveEvent) => void;
}

/** Shows Now with these workers and jobs. */
export async function openNow(
  workers: readonly WorkerView[],
  ended: readonly JobSummary[],
  present: readonly JobSummary[] = [],
  curves: readonly unknown[] = [],
  queue: readonly QueueEntry[] = [],
  total = queue.length,
): Promise<Floor> {
  let heard: (event: LiveEvent) => void = () => undefined;
  let watched: Watch = {};
  vi.spyOn(live, "watch").mockImplementation((watch, listener) => {
    [watched, heard] = [watch, listener];
    return () => undefined;
  });
  const asked = serve(({ path, query }) => {
    if (path === "v1/workers") return { data: workers };
    if (path.endsWith("/history")) return { devices: [] };
    if (path === "v1/queue") return { data: queue, has_more: total > queue.length, next: null, total };
    if (path === "v1/metrics") return { series: curves };
    const states = query.getAll("state");
    const found = query.has("sort") ? ended : present.filter(({ state }) => states.includes(state));
    return { data: path === "v1/jobs" ? found : [], has_more: false, next: null };
  });
  const host = show(Now, {});
  await vi.advanceTimersByTimeAsync(10);
  await settled();
  return { host, asked, watched, tell: (event) => heard(event) };
}
