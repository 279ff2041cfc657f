/** What is known of a job, from answers of the service and from what the stream tells. They may overtake each other. */
import type { JobSummary } from "../api/wire";
import type { Items } from "./events";

/** Returns the newer of two answers, and of equals the one that came later. */
export function newest<T extends JobSummary>(known: T | null | undefined, answer: T): T {
  return known && isOlder(answer, known) ? known : answer;
}

/** Returns what is known with what the stream tells. That is a summary: it has some of the fields and of the metrics. */
export function merged<T extends JobSummary>(known: T, reported: JobSummary): T {
  if (isOlder(reported, known)) return known;
  const metrics = { ...known.metrics, ...reported.metrics };
  return { ...known, ...reported, metrics, error: withTraceback(known.error, reported.error) };
}

/** Returns what is known with the newest values of what the job has stored since. */
export function grown<T extends JobSummary>(known: T, { position, metrics }: Items): T {
  if (position <= known.position) return known;
  const values = Object.entries(metrics).map(([key, points]) => [key, points.value.at(-1)]);
  return { ...known, position, metrics: { ...known.metrics, ...Object.fromEntries(values) } };
}

/** Returns the error with the traceback that is known of it: a summary has none. */
function withTraceback(known: JobSummary["error"], reported: JobSummary["error"]): JobSummary["error"] {
  if (!reported || reported.traceback || known?.message !== reported.message) return reported;
  return { ...reported, traceback: known.traceback ?? null };
}

function isOlder(one: JobSummary, other: JobSummary): boolean {
  return one.version === other.version ? one.position < other.position : one.version < other.version;
}
