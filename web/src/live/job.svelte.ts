/** An open job: itself and its attempts, read once for all that show them, and kept as new as the stream tells. */
import { ApiError, failureOf, get } from "../api/client";
import type { AttemptView, JobView, Page } from "../api/wire";
import type { LiveEvent } from "./events";
import { grown, merged, newest } from "./reported";

export class JobStore {
  job = $state.raw<JobView | null>(null);
  /** Oldest first; none while they are not read. */
  attempts = $state.raw<readonly AttemptView[]>([]);
  /** Why the job could not be read, or that it is gone. */
  failure = $state.raw<ApiError | null>(null);

  private readonly closed = new AbortController();
  private readonly path: string;
  private isReading = false;
  /** The state and the attempt of the job for which the attempts were read. */
  private stage: string | null = null;
  /** The newest request for the attempts, and the one that follows it. */
  private running: Promise<void> = Promise.resolve();
  private next: Promise<void> | null = null;

  constructor(readonly id: string) {
    this.path = `v1/jobs/${encodeURIComponent(id)}`;
  }

  /** Reads the job, and then its attempts if they may have changed. A slow answer is waited for, not asked for anew. */
  async read(): Promise<void> {
    if (this.isReading) return;
    this.isReading = true;
    try {
      this.take(await get<JobView>(this.path, {}, this.closed.signal));
      this.failure = null;
    } catch (error) {
      if (this.closed.signal.aborted) return;
      this.failure = failureOf(error);
    } finally {
      this.isReading = false;
    }
  }

  /** Takes an answer of the service about this job, such as that to an action. */
  take(job: JobView): void {
    this.know(newest(this.job, job));
  }

  /** Takes what the stream tells. `changed`: something may have been missed. */
  heard(event: LiveEvent): void {
    if (event.kind === "job" && event.job.id === this.id && this.job) {
      const had = this.job.state;
      this.know(merged(this.job, event.job));
      if (had !== "failed" && event.job.state === "failed") void this.read(); // for its traceback
    } else if (event.kind === "items" && event.items.job_id === this.id && this.job)
      this.job = grown(this.job, event.items);
    else if (event.kind === "deleted" && event.jobId === this.id)
      this.failure = new ApiError(404, "gone", "The job was deleted.");
    else if (event.kind === "changed") {
      this.stage = null;
      void this.read();
    }
  }

  /** Reads the attempts again. All who ask while they are being read wait for one more answer, which is not older. */
  readAttempts(): Promise<void> {
    this.next ??= this.running.then(() => {
      this.next = null;
      return (this.running = this.fetchAttempts());
    });
    return this.next;
  }

  /** Ends requests. */
  close(): void {
    this.closed.abort();
  }

  private know(job: JobView): void {
    this.job = job;
    const stage = `${job.state}:${job.attempt}`;
    if (stage === this.stage) return;
    this.stage = stage;
    void this.readAttempts();
  }

  /** The page can do without attempts: the next change reads them again. */
  private async fetchAttempts(): Promise<void> {
    try {
      const path = `${this.path}/attempts`;
      this.attempts = (await get<Page<AttemptView>>(path, {}, this.closed.signal)).data;
    } catch (error) {
      if (!this.closed.signal.aborted) failureOf(error);
    }
  }
}
