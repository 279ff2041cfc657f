/** Whether a job waits in the queue of a cluster, which has not given it its nodes yet. */
import type { JobSummary } from "../api/wire";

export function waitsInCluster({ state, status_reason }: JobSummary): boolean {
  return state === "starting" && status_reason.code === "waiting_in_slurm";
}
