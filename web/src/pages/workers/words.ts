/** What the pages of workers say of one. */
import type { WorkerView } from "../../api/wire";

/** How many of a worker's devices are held, free and not offered: none of a worker that takes no jobs is free. */
export interface Count {
  readonly held: number;
  readonly free: number;
  readonly blocked: number;
}

export function count({ devices, state }: WorkerView): Count {
  const held = devices.filter((device) => device.job_id || device.holder).length;
  const blocked = devices.filter((device) => !device.job_id && !device.holder && device.blocked).length;
  return { held, blocked, free: state === "ready" ? devices.length - held - blocked : 0 };
}

/** Returns `4 × NVIDIA H100`, and each kind of several. */
export function modelText({ devices }: WorkerView): string {
  const counts = new Map<string, number>();
  for (const { name } of devices) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].map(([name, number]) => `${number} × ${name}`).join(", ");
}

/** Says what the worker's state means for its jobs. */
export function stateWords({ state }: WorkerView): string {
  if (state === "draining")
    return "Draining: accepts no new jobs. Running jobs save a checkpoint and return to the queue.";
  if (state === "lost")
    return "No heartbeat: its jobs returned to the queue. Run torchyard doctor on its host.";
  return "Accepting jobs.";
}
