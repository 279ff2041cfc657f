/** Small curves of the monitored metric, for the rows on the screen. */
import { type ApiError, failureOf, get } from "../api/client";
import type { JobSummary, MetricsAnswer } from "../api/wire";

const MOST_JOBS = 50;
const POINTS = 32;
const APART_MS = 10_000;

interface Read {
  readonly position: number;
  readonly at: number;
}

export class Sparks {
  curves = $state.raw<ReadonlyMap<string, readonly (number | null)[]>>(new Map());
  failure = $state.raw<ApiError | null>(null);

  private readonly read = new Map<string, Read>();
  private isReading = false;
  private uppermost: string | undefined;

  /** Does as `want`, if the first of these jobs is the one of the last call: while one scrolls, curves would come too late to be seen. */
  async wantAtRest(jobs: readonly JobSummary[]): Promise<void> {
    const isAtRest = jobs[0]?.id === this.uppermost;
    this.uppermost = jobs[0]?.id;
    if (isAtRest) await this.want(jobs);
  }

  /** Reads the curves of these jobs that are not known, or have grown for a while. */
  async want(jobs: readonly JobSummary[]): Promise<void> {
    const stale = jobs.filter((job) => this.isStale(job)).slice(0, MOST_JOBS);
    if (this.isReading || stale.length === 0) return;
    this.isReading = true;
    const at = Date.now();
    for (const job of stale) this.read.set(job.id, { position: job.position, at });
    try {
      await this.load(stale);
      this.failure = null;
    } catch (error) {
      this.failure = failureOf(error);
    } finally {
      this.isReading = false;
    }
    if (stale.length === MOST_JOBS) await this.want(jobs);
  }

  private isStale(job: JobSummary): boolean {
    const read = this.read.get(job.id);
    if (monitored(job) === null) return false;
    return !read || (read.position !== job.position && Date.now() - read.at > APART_MS);
  }

  private async load(jobs: readonly JobSummary[]): Promise<void> {
    const keys = new Map(jobs.map((job) => [job.id, monitored(job)] as const));
    const answer = await get<MetricsAnswer>("v1/metrics", {
      job: jobs.map((job) => job.id),
      key: [...new Set([...keys.values()].filter((key) => key !== null))],
      max_points: POINTS,
    });
    const curves = new Map(this.curves);
    for (const series of answer.series)
      if (keys.get(series.job_id) === series.key)
        curves.set(
          series.job_id,
          series.columns.mean.map((value) => (typeof value === "number" ? value : null)),
        );
    this.curves = curves;
  }
}

/** Returns the metric that decides which checkpoint is best, as far as a summary tells it. */
export function monitored(job: JobSummary): string | null {
  if (job.best) return job.best.metric;
  const keys = Object.keys(job.metrics);
  const own = keys.find((key) => key !== "train/loss" && key !== "val/loss");
  return own ?? keys.find((key) => key === "val/loss") ?? keys[0] ?? null;
}

/** Returns the value that goes with it: the best one, else the last. */
export function monitoredValue(job: JobSummary): number | string | null | undefined {
  const key = monitored(job);
  return job.best?.value ?? (key === null ? null : job.metrics[key]);
}
