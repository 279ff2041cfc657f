/** Jobs of one query: read page by page as the service sorts them, changed in place as the stream tells. */
import { type ApiError, failureOf, get, type Query } from "../../api/client";
import { NewestRequest } from "../../api/newest";
import type { JobsPage, JobSummary } from "../../api/wire";
import { StreamedRows } from "../../live/streamed.svelte";
import { merged } from "../../live/reported";

const MOST = 1_000; // of one answer

export class PagedJobs {
  rows = $state.raw<readonly JobSummary[]>([]);
  hasMore = $state(false);
  /** Why the newest request for a following page failed. */
  failure = $state.raw<ApiError | null>(null);

  private next: string | null = null;
  private readonly streamed = new StreamedRows();
  private isReadingMore = false;
  private readonly following = new NewestRequest();

  constructor(
    private readonly query: () => Query,
    private readonly first: number,
  ) {}

  /** Shows the first rows while another query is read. */
  begin(): void {
    this.following.end();
    this.isReadingMore = false;
    this.rows = this.rows.slice(0, this.first);
  }

  /** Reads the rows that are known again, or the first ones. Returns their page; null if the request was ended. */
  async read(signal: AbortSignal, also: Query = {}): Promise<JobsPage | null> {
    const limit = Math.min(MOST, Math.max(this.first, this.rows.length));
    const page = await get<JobsPage>("v1/jobs", { ...this.query(), ...also, limit }, signal);
    if (signal.aborted) return null;
    const after = page.has_more ? following(page.data, this.rows) : null;
    if (after === null) this.take(this.unique(page.data), page);
    else this.rows = this.unique([...page.data, ...after]);
    this.streamed.keep(this.rows);
    return page;
  }

  /** Reads the following page of so many rows, unless one is being read. */
  async more(limit: number): Promise<void> {
    if (!this.hasMore || this.isReadingMore) return;
    const signal = this.following.begin();
    this.isReadingMore = true;
    try {
      const page = await get<JobsPage>("v1/jobs", { ...this.query(), limit, after: this.next }, signal);
      if (signal.aborted) return;
      this.failure = null;
      this.append(page);
    } catch (error) {
      if (signal.aborted) return;
      this.failure = failureOf(error);
    }
    this.isReadingMore = false;
  }

  /** Takes what the stream tells of a job. */
  heard(job: JobSummary): void {
    this.streamed.take(job);
    const at = this.rows.findIndex(({ id }) => id === job.id);
    const row = this.rows[at];
    if (row) this.rows = this.rows.with(at, merged(row, job));
  }

  /** Changes a row as it is known here, before the service says so. */
  change(id: string, changes: Partial<JobSummary>): void {
    this.rows = this.rows.map((row) => (row.id === id ? { ...row, ...changes } : row));
  }

  remove(id: string): void {
    this.rows = this.rows.filter((row) => row.id !== id);
  }

  close(): void {
    this.following.end();
  }

  private append(page: JobsPage): void {
    const added = this.unique(page.data);
    const ids = new Set(added.map(({ id }) => id));
    const hasMoved = this.rows.some(({ id }) => ids.has(id));
    const rows = [...this.rows, ...added];
    this.take(hasMoved ? this.unique(rows) : rows, page);
  }

  /** Returns each job once, as it is known best: a row may move between two pages while they are read. */
  private unique(rows: readonly JobSummary[]): readonly JobSummary[] {
    return [...new Map(rows.map((row) => [row.id, this.streamed.known(row)])).values()];
  }

  private take(rows: readonly JobSummary[], page: JobsPage): void {
    this.rows = rows;
    this.hasMore = page.has_more;
    this.next = page.next ?? null;
  }
}

/**
 * Returns the known rows that follow a first page that was read again. Null where there are none, or the page has no
 * two neighbours that are known as neighbours: one row alone may have moved there from far below.
 */
function following(page: readonly JobSummary[], known: readonly JobSummary[]): readonly JobSummary[] | null {
  const places = new Map(known.map(({ id }, at) => [id, at]));
  const last = page.findLastIndex(({ id }, at) => {
    const place = places.get(id);
    return place !== undefined && place > 0 && known[place - 1]?.id === page[at - 1]?.id;
  });
  const end = places.get(page[last]?.id ?? "");
  if (end === undefined) return null;
  const ids = new Set(page.map(({ id }) => id));
  const rest = known.slice(end + 1).filter(({ id }) => !ids.has(id));
  return rest.length > 0 ? rest : null;
}
