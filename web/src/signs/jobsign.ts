/** The sign of a job in lists: its state, or "skipped" if a job that it waits for did not end as required. */
import type { JobState, JobSummary } from "../api/wire";

export interface Sign {
  readonly state: JobState;
  readonly word: string;
}

export function signOf({ state, status_reason }: Pick<JobSummary, "state" | "status_reason">): Sign {
  const isSkipped = state === "failed" && status_reason.code === "dependency_failed";
  return isSkipped ? { state: "cancelled", word: "skipped" } : { state, word: state };
}
