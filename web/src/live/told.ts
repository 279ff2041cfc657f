/** What is known of a job, from answers of the service and from what the stream tells. They may overtake each other. */
import type { JobSummary } from "../api/wire";
import type { Items } from "./events";

/** Returns the newer of two answers, and of equals the one that came later. */
export function newest<T extends JobSummary>(known: T | null | undefined, answer: T): T {
  return known && isOlder(answer, known) ? known : answer;
}

/** Returns what is known with what the stream tells. That is a summary: it has some of the fields and of the metrics. */
export function merged<T extends JobSummary>(known: T, told: JobSummary): T {
  if (isOlder(told, known)) return known;
  const metrics = { ...known.metrics, ...told.metrics };
  return { ...known, ...told, metrics, error: withTraceback(known.error, told.error) };
}

/** Returns what is known with the newest values of what the job has stored since. */
export function grown<T extends JobSummary>(known: T, { position, metrics }: Items): T {
  if (position <= known.position) return known;
  const values = Object.entries(metrics).map(([key, points]) => [key, points.value.at(-1)]);
  return { ...known, position, metrics: { ...known.metrics, ...Object.fromEntries(values) } };
}

/** Returns the error with the traceback that is known of it: a summary has none. */
function withTraceback(known: JobSummary["error"], told: JobSummary["error"]): JobSummary["error"] {
  if (!told || told.traceback || known?.message !== told.message) return told;
  return { ...told, traceback: known.traceback ?? null };
}

function isOlder(one: JobSummary, other: JobSummary): boolean {
  return one.version === other.version ? one.position < other.position : one.version < other.version;
}
