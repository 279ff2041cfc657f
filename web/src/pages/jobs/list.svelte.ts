/** The rows of the page: read page by page as the service sorts them, changed in place as the stream tells. */
import { ApiError, get, type Query } from "../../api/client";
import { Reading } from "../../api/reading.svelte";
import type { JobsPage, JobState, JobSummary } from "../../api/wire";
import type { LiveEvent } from "../../live/events";
import { merged, newest } from "../../live/told";
import { queryOf, type Filter } from "./filter";

const FIRST = 100;
/** Small enough to be read between two frames, however fast one scrolls; where more is wanted at once, as much as that. */
const PAGE = 250;
const LARGEST_PAGE = 500;
const MOST = 1_000; // of one answer

export class JobList {
  rows = $state.raw<readonly JobSummary[]>([]);
  counts = $state.raw<Readonly<Partial<Record<JobState, number>>>>({});
  total = $state(0);
  /** Whether all jobs are counted; if not, the newest are. */
  isCounted = $state(true);
  hasMore = $state(false);
  isRead = $state(false);

  private filter: Filter | null = null;
  private columns: readonly string[] = [];
  private next: string | null = null;
  private told = new Map<string, JobSummary>();
  private isReadingMore = false;
  private generation = 0;
  private readonly first = new Reading(() => this.readFirst());
  private moreFailure = $state.raw<ApiError | null>(null);

  /** Why the newest request failed. */
  get failure(): ApiError | null {
    return this.first.failure ?? this.moreFailure;
  }

  /** Whether the service lists all jobs that match: by a column it sorts the newest ones alone. */
  isWhole = $state(true);

  /** Lists what matches, from the top, with the values of these columns. */
  show(filter: Filter, columns: readonly string[]): void {
    this.filter = filter;
    this.columns = columns;
    this.generation += 1;
    this.rows = this.rows.slice(0, FIRST);
    void this.first.read();
  }

  /** Changes a row as it is known here, before the service says so. */
  change(id: string, changes: Partial<JobSummary>): void {
    this.rows = this.rows.map((row) => (row.id === id ? { ...row, ...changes } : row));
  }

  /** Reads again what is listed. */
  again(): void {
    this.first.again();
  }

  /** Reads the following page, if fewer than `wanted` rows are known. */
  async more(wanted: number): Promise<void> {
    if (!this.hasMore || this.isReadingMore || this.filter === null) return;
    const missing = wanted - this.rows.length;
    if (missing <= 0) return;
    const generation = this.generation;
    const limit = Math.min(LARGEST_PAGE, Math.max(PAGE, missing));
    this.isReadingMore = true;
    try {
      const page = await get<JobsPage>("v1/jobs", { ...this.query(), limit, after: this.next });
      this.moreFailure = null;
      if (generation === this.generation) this.append(page);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.moreFailure = error;
    } finally {
      this.isReadingMore = false;
    }
  }

  /** Takes what the stream tells. */
  heard(event: LiveEvent): void {
    if (event.kind === "changed") this.again();
    if (event.kind === "deleted") this.rows = this.rows.filter((row) => row.id !== event.jobId);
    if (event.kind !== "job") return;
    this.told.set(event.job.id, event.job);
    const at = this.rows.findIndex((row) => row.id === event.job.id);
    const row = this.rows[at];
    if (row) this.rows = this.rows.with(at, merged(row, event.job));
  }

  close(): void {
    this.first.close();
  }

  private async readFirst(): Promise<void> {
    if (this.filter === null) return;
    const generation = this.generation;
    const known = this.rows.length;
    const limit = Math.min(MOST, Math.max(FIRST, known));
    const page = await get<JobsPage>("v1/jobs", { ...this.query(), counts: true, limit });
    if (generation !== this.generation) return this.readFirst();
    this.counts = page.counts ?? {};
    this.total = page.total ?? page.data.length;
    this.isCounted = page.counts_complete ?? true;
    this.isWhole = page.list_complete ?? true;
    this.isRead = true;
    const after = page.has_more ? following(page.data, this.rows) : null;
    if (after === null) this.take(unique(page.data, this.told), page);
    else this.rows = unique([...page.data, ...after], this.told);
    const ids = new Set(this.rows.map(({ id }) => id));
    this.told = new Map([...this.told].filter(([id]) => ids.has(id)));
  }

  private query(): Query {
    return this.filter === null ? {} : { ...queryOf(this.filter), columns: this.columns };
  }

  private append(page: JobsPage): void {
    const added = unique(page.data, this.told);
    const ids = new Set(added.map(({ id }) => id));
    const hasMoved = this.rows.some(({ id }) => ids.has(id));
    const rows = [...this.rows, ...added];
    this.take(hasMoved ? unique(rows, this.told) : rows, page);
  }

  private take(rows: readonly JobSummary[], page: JobsPage): void {
    this.rows = rows;
    this.hasMore = page.has_more;
    this.next = page.next ?? null;
  }
}

/**
 * Returns the known rows that follow a first page that was read again. Null where the page covers them, or has no two
 * neighbours that are known as neighbours: one row alone may have moved there from far below.
 */
function following(page: readonly JobSummary[], known: readonly JobSummary[]): readonly JobSummary[] | null {
  if (known.length <= page.length) return null;
  const places = new Map(known.map(({ id }, at) => [id, at]));
  const last = page.findLastIndex(({ id }, at) => {
    const place = places.get(id);
    return place !== undefined && place > 0 && known[place - 1]?.id === page[at - 1]?.id;
  });
  const end = places.get(page[last]?.id ?? "");
  if (end === undefined) return null;
  const ids = new Set(page.map(({ id }) => id));
  return known.slice(end + 1).filter(({ id }) => !ids.has(id));
}

/** Returns each job once, as it is known best: a row may move between two pages while they are read. */
function unique(rows: readonly JobSummary[], told: ReadonlyMap<string, JobSummary>): JobSummary[] {
  const found = new Map<string, JobSummary>();
  for (const row of rows) {
    const best = newest(told.get(row.id), row);
    found.set(row.id, best === row || !row.columns ? best : { ...best, columns: row.columns });
  }
  return [...found.values()];
}
