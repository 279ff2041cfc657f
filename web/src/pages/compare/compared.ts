import type { JobView } from "../../api/wire";
import type { Colour } from "../../charts/colours";

/** A job that is compared, in its colour. */
export interface Compared {
  readonly id: string;
  readonly view: JobView;
  readonly colour: Colour;
  /** Of its newest attempt. */
  readonly devices: string;
}

/** Returns how long a job has run, from its first start to its end or now, in seconds; null before it started. */
export function ranFor(job: JobView, now: number = Date.now()): number | null {
  if (!job.started_at) return null;
  return ((job.finished_at ? Date.parse(job.finished_at) : now) - Date.parse(job.started_at)) / 1000;
}

/** As many as the service answers at once. */
export const MOST_COMPARED = 50;

/** Returns all metrics of the jobs, those of most jobs first, evaluation before training. */
export function metricKeys(jobs: readonly JobView[]): readonly string[] {
  return tableKeys(jobs, Infinity);
}

/** Returns the keys whose newest values the table shows: those of most jobs, evaluation before training. */
export function tableKeys(jobs: readonly JobView[], most: number): readonly string[] {
  const counts = new Map<string, number>();
  for (const job of jobs)
    for (const key of Object.keys(job.metrics)) counts.set(key, (counts.get(key) ?? 0) + 1);
  const rank = (key: string): number => (key.startsWith("val/") ? 0 : key.startsWith("train/") ? 1 : 2);
  return [...counts.keys()]
    .sort((a, b) => (counts.get(b) ?? 0) - (counts.get(a) ?? 0) || rank(a) - rank(b) || a.localeCompare(b))
    .slice(0, most);
}
