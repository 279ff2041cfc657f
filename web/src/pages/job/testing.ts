/** A job, its attempts and checkpoints as the service answers them. */
import type { AttemptView, CheckpointView, JobView } from "../../api/wire";

export const AT = "2026-01-01T00:00:00Z";

export function view(changes: Record<string, unknown> = {}): JobView {
  return {
    ...{ id: "job_a", name: "unet", state: "running", owner: "ada", attempt: 1, version: 1, position: 1 },
    ...{ created_at: AT, started_at: AT, finished_at: null, metrics: {}, progress: { step: 0 }, best: null },
    ...{
      status_reason: { code: "running", message: "" },
      spec: {
        resources: { device: "auto", nodes: 1, devices_per_node: 2 },
        checkpoint: { monitor: "val/loss" },
      },
    },
    ...{ devices: [], labels: {}, card: {}, error: null, after: [] },
    ...changes,
  } as unknown as JobView;
}

/** A job of two nodes with two GPUs each, in the pool `gpu`, once the cluster has chosen them. */
export function ofTwoNodes(changes: Record<string, unknown> = {}): JobView {
  const devices = [0, 1].flatMap((node) =>
    [0, 1].map((index) => ({
      worker: "wrk_2",
      index,
      uuid: `${node}${index}`,
      name: "A100",
      node,
      host: `n${node + 1}`,
    })),
  );
  return view({
    spec: {
      resources: { device: "cuda", nodes: 2, devices_per_node: 2 },
      checkpoint: { monitor: "val/loss" },
    },
    devices,
    ...changes,
  });
}

export function attempt(number: number, changes: Record<string, unknown> = {}): AttemptView {
  return {
    ...{ number, worker: "box-a", devices: [{ index: 0 }, { index: 1 }], started_at: AT, ended_at: null },
    ...{ end_reason: null, start_step: 0, detail: null },
    ...changes,
  } as unknown as AttemptView;
}

export function checkpoint(number: number, changes: Record<string, unknown> = {}): CheckpointView {
  return {
    ...{ id: `ckpt_${number}`, step: 100 * number, epoch: number, metrics: {}, aliases: [], files: [] },
    ...{ size: 1024, sha256: "0123456789abcdef", created_at: AT },
    ...changes,
  } as unknown as CheckpointView;
}
