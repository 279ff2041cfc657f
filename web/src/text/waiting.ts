/** What a job waits for: nodes of a cluster, or a worker that could run it. */
import type { JobSummary } from "../api/wire";

export function waitsInCluster({ state, status_reason }: JobSummary): boolean {
  return state === "starting" && status_reason.code === "waiting_in_slurm";
}

/** Whether no worker that there is could ever run a job, by the code of the reason for which it waits. */
export function fitsNowhere(code: string | null | undefined): boolean {
  return code === "too_big" || code === "no_such_device" || code === "no_such_worker";
}
