/** Who can open a job, in words. */
import type { JobSummary } from "../../api/wire";
import { session } from "../../shell/session.svelte";

/** Returns who can read the job, to begin a sentence: "Only you and administrators". Reactive. */
export function readersOf(job: Pick<JobSummary, "owner" | "visibility">): string {
  if (job.visibility === "team") return "Everyone with an account";
  return `Only ${job.owner === session.me?.name ? "you" : job.owner} and administrators`;
}
