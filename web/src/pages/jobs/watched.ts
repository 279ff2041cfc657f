/** The metric that most of the listed jobs watch. */
import type { JobSummary } from "../../api/wire";
import { monitored } from "../../signs/sparks.svelte";

/** Of a long list, the first ones tell. */
const READ = 100;

/** Returns the column with the values that the rows show of it: the best ones, or the last ones of jobs without a checkpoint. */
export function watchedColumn(jobs: readonly JobSummary[]): string | null {
  const counts = new Map<string, number>();
  for (const job of jobs.slice(0, READ)) {
    const key = monitored(job);
    if (key === null) continue;
    const column = `metric:${key}:${job.best ? "best" : "last"}`;
    counts.set(column, (counts.get(column) ?? 0) + 1);
  }
  const [most] = [...counts].sort(([, one], [, other]) => other - one);
  return most?.[0] ?? null;
}
