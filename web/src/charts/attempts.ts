/** The attempts of the jobs whose curves are shown. They say where points lie on the x axis. */
import { Place, type Attempt, type XKind } from "./axis";

/** A job whose curves are shown. */
export interface CurveJob {
  readonly id: string;
  readonly name: string;
  /** Steps of one epoch, or null where they are unknown. */
  readonly perEpoch: number | null;
  /** Oldest first; none while they are not read. */
  readonly attempts: readonly Attempt[];
  /** The metric that decides which checkpoint is best; null where it is unknown. */
  readonly monitor?: string | null;
  /** Whether it logs nothing any more: it needs not be followed. */
  readonly isEnded?: boolean;
}

/** Returns the metric that most of the jobs monitor; of several the first one's. */
export function monitorOf(jobs: readonly Pick<CurveJob, "monitor">[]): string | null {
  const counts = new Map<string, number>();
  for (const { monitor } of jobs) if (monitor) counts.set(monitor, (counts.get(monitor) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1])[0]?.[0] ?? null;
}

export class Attempts {
  #jobs = new Map<string, CurveJob>();
  #places = new Map<string, Place>();

  /** Takes these jobs in place of others, or the same with newer attempts. */
  take(jobs: readonly CurveJob[]): void {
    this.#jobs = new Map(jobs.map((job) => [job.id, job]));
    this.#places.clear();
  }

  /** Returns the number of a job's newest attempt that is known. */
  newest(jobId: string): number {
    return this.#jobs.get(jobId)?.attempts.at(-1)?.number ?? 1;
  }

  /** Says whether any of the jobs has more than one attempt. */
  hasSeams(): boolean {
    return [...this.#jobs.values()].some((job) => job.attempts.length > 1);
  }

  /** Returns where a job's points lie. `origin` is the time of its first one, for jobs whose attempts are unknown. */
  place(jobId: string, kind: XKind, origin: number): Place {
    const name = `${kind} ${jobId}`;
    const job = this.#jobs.get(jobId);
    const found =
      this.#places.get(name) ?? new Place(kind, job?.attempts ?? [], job?.perEpoch ?? null, origin);
    this.#places.set(name, found);
    return found;
  }
}
