/** What charts need of the jobs whose curves are drawn, beside what the list has. */
import { ApiError, get } from "../../api/client";
import type { AttemptView, JobSummary, JobView, Page } from "../../api/wire";
import type { CurveJob } from "../../charts/attempts";
import { stepsPerEpoch } from "../../charts/axis";
import type { LiveEvent } from "../../live/events";
import { merged } from "../../live/reported";
import { monitored } from "../../signs/sparks.svelte";

const ENDED: ReadonlySet<string> = new Set(["succeeded", "failed", "cancelled"]);

export class Runs {
  /** Jobs that were chosen and are not listed: further down, or beyond what is read. */
  private others = $state.raw<ReadonlyMap<string, JobSummary>>(new Map());
  private attempts = $state.raw<ReadonlyMap<string, readonly AttemptView[]>>(new Map());
  private readonly asked = new Set<string>();

  /** Returns the jobs of these ids, as far as they are known. */
  jobs(ids: readonly string[], rows: readonly JobSummary[]): readonly JobSummary[] {
    const listed = new Map(rows.map((row) => [row.id, row]));
    return ids.flatMap((id) => listed.get(id) ?? this.others.get(id) ?? []);
  }

  /** Returns the jobs as charts take them. */
  curves(jobs: readonly JobSummary[]): readonly CurveJob[] {
    return jobs.map((job) => ({
      ...{ id: job.id, name: job.name, perEpoch: stepsPerEpoch(job.progress), monitor: monitored(job) },
      ...{ attempts: this.attempts.get(job.id) ?? [], isEnded: ENDED.has(job.state) },
    }));
  }

  /** Reads the jobs of these ids that are not listed, and the attempts of those that have several. */
  async want(ids: readonly string[], rows: readonly JobSummary[]): Promise<void> {
    const listed = new Set(rows.map(({ id }) => id));
    const missing = ids.filter((id) => !listed.has(id) && !this.others.has(id) && !this.asked.has(id));
    for (const id of missing) this.asked.add(id);
    const found = await Promise.all(
      missing.map((id) => quietly(get<JobView>(`v1/jobs/${encodeURIComponent(id)}`))),
    );
    const known = found.filter((job) => job !== null);
    if (known.length > 0)
      this.others = new Map([...this.others, ...known.map((job) => [job.id, job] as const)]);
    for (const { id, attempt } of this.jobs(ids, rows))
      if (attempt > 1 && (this.attempts.get(id)?.at(-1)?.number ?? 0) < attempt) await this.readAttempts(id);
  }

  /** Reads the attempts of a job: they say where it went on. Without them its curves have no marks of that. */
  async readAttempts(id: string): Promise<void> {
    const page = await quietly(get<Page<AttemptView>>(`v1/jobs/${encodeURIComponent(id)}/attempts`));
    if (page) this.attempts = new Map(this.attempts).set(id, page.data);
  }

  heard(event: LiveEvent): void {
    if (event.kind !== "job") return;
    const known = this.others.get(event.job.id);
    if (known) this.others = new Map(this.others).set(known.id, merged(known, event.job));
  }
}

/** Returns null for what is not there, or not for the reader. */
async function quietly<T>(answer: Promise<T>): Promise<T | null> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof ApiError) return null;
    throw error;
  }
}
