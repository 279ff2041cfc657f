/** The rows of the page, with how many there are of each state. */
import type { ApiError, Query } from "../../api/client";
import { Reading } from "../../api/reading.svelte";
import type { JobState, JobSummary } from "../../api/wire";
import type { LiveEvent } from "../../live/events";
import { queryOf, type Filter } from "./filter";
import { PagedJobs } from "./paged.svelte";

const FIRST = 100;
/** Small enough to be read between two frames, however fast one scrolls; where more is wanted at once, as much as that. */
const PAGE = 250;
const LARGEST_PAGE = 500;

export class JobList {
  counts = $state.raw<Readonly<Partial<Record<JobState, number>>>>({});
  total = $state(0);
  /** Whether all jobs are counted; if not, the newest are. */
  isCounted = $state(true);
  isRead = $state(false);
  /** Whether the service lists all jobs that match: by a column it sorts the newest ones alone. */
  isWhole = $state(true);

  private filter: Filter | null = null;
  private columns: readonly string[] = [];
  private readonly jobs = new PagedJobs(() => this.query(), FIRST);
  private readonly first = new Reading((signal) => this.readFirst(signal));

  get rows(): readonly JobSummary[] {
    return this.jobs.rows;
  }

  get hasMore(): boolean {
    return this.jobs.hasMore;
  }

  /** Why the newest request failed. */
  get failure(): ApiError | null {
    return this.first.failure ?? this.jobs.failure;
  }

  /** Lists what matches, from the top, with the values of these columns. */
  show(filter: Filter, columns: readonly string[]): void {
    this.filter = filter;
    this.columns = columns;
    this.jobs.begin();
    void this.first.read();
  }

  /** Changes a row as it is known here, before the service says so. */
  change(id: string, changes: Partial<JobSummary>): void {
    this.jobs.change(id, changes);
  }

  /** Reads again what is listed. */
  again(): void {
    this.first.again();
  }

  /** Reads the following page, if fewer than `wanted` rows are known. */
  async more(wanted: number): Promise<void> {
    const missing = wanted - this.rows.length;
    if (missing > 0) await this.jobs.more(Math.min(LARGEST_PAGE, Math.max(PAGE, missing)));
  }

  /** Takes what the stream tells. */
  heard(event: LiveEvent): void {
    if (event.kind === "changed") this.again();
    if (event.kind === "deleted") this.jobs.remove(event.jobId);
    if (event.kind === "job") this.jobs.heard(event.job);
  }

  close(): void {
    this.first.close();
    this.jobs.close();
  }

  private async readFirst(signal: AbortSignal): Promise<void> {
    const page = await this.jobs.read(signal, { counts: true });
    if (page === null) return;
    this.counts = page.counts ?? {};
    this.total = page.total ?? page.data.length;
    this.isCounted = page.counts_complete ?? true;
    this.isWhole = page.list_complete ?? true;
    this.isRead = true;
  }

  private query(): Query {
    return this.filter === null ? {} : { ...queryOf(this.filter), columns: this.columns };
  }
}
