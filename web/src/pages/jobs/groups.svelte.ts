/** Groups of the listed jobs, and the jobs of those that are open. */
import { ApiError, get } from "../../api/client";
import { Reading } from "../../api/reading.svelte";
import type { JobGroup, JobsPage, JobSummary } from "../../api/wire";
import { merged } from "../../live/told";
import { matchingOf, queryOf, type Filter } from "./filter";

const PAGE = 200;
/** The group of the jobs without a value. */
export const WITHOUT = "-";

interface Opened {
  readonly rows: readonly JobSummary[];
  readonly next: string | null;
}

/** A row of the table: a group, a job, or what reads more of a group. */
export type Line =
  | { readonly kind: "group"; readonly id: string; readonly group: JobGroup; readonly isOpen: boolean }
  | { readonly kind: "more"; readonly id: string; readonly key: string }
  | { readonly kind: "job"; readonly id: string; readonly job: JobSummary };

export class GroupList {
  groups = $state.raw<readonly JobGroup[]>([]);
  isWhole = $state(true);
  isRead = $state(false);

  private opened = $state.raw<ReadonlyMap<string, Opened>>(new Map());
  private openKeys = $state.raw<ReadonlySet<string>>(new Set());
  private filter: Filter | null = null;
  private columns: readonly string[] = [];
  private generation = 0;
  private readonly reading = new Reading(() => this.readGroups());
  private jobsFailure = $state.raw<ApiError | null>(null);

  /** The groups, each open one with its jobs. */
  readonly lines = $derived(this.toLines());

  get failure(): ApiError | null {
    return this.reading.failure ?? this.jobsFailure;
  }

  get jobs(): readonly JobSummary[] {
    return [...this.openKeys].flatMap((key) => this.opened.get(key)?.rows ?? []);
  }

  /** Groups what matches by `filter.groupBy`; `open` are the keys of the groups that show their jobs. */
  show(filter: Filter, columns: readonly string[], open: readonly string[]): void {
    const isOther = JSON.stringify([this.filter, this.columns]) !== JSON.stringify([filter, columns]);
    this.filter = filter;
    this.columns = columns;
    this.openKeys = new Set(open);
    if (isOther) {
      this.generation += 1;
      this.opened = new Map();
      void this.reading.read();
    }
    for (const key of open) if (!this.opened.has(key)) void this.more(key);
  }

  /** Reads again what is shown. */
  again(): void {
    this.reading.again();
  }

  close(): void {
    this.reading.close();
  }

  heard(job: JobSummary): void {
    this.replace((row) => (row.id === job.id ? merged(row, job) : row));
  }

  change(id: string, changes: Partial<JobSummary>): void {
    this.replace((row) => (row.id === id ? { ...row, ...changes } : row));
  }

  /** Reads the next jobs of a group. */
  async more(key: string): Promise<void> {
    if (this.filter === null) return;
    const { generation, filter } = this;
    const known = this.opened.get(key) ?? { rows: [], next: null };
    this.opened = new Map(this.opened).set(key, known);
    try {
      const page = await get<JobsPage>("v1/jobs", {
        ...queryOf(filter),
        ...{ columns: this.columns, group_by: filter.groupBy, in_group: key, limit: PAGE, after: known.next },
      });
      if (generation !== this.generation) return;
      const next = page.has_more ? (page.next ?? null) : null;
      this.opened = new Map(this.opened).set(key, { rows: unique([...known.rows, ...page.data]), next });
      this.jobsFailure = null;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.jobsFailure = error;
    }
  }

  private async readGroups(): Promise<void> {
    if (!this.filter?.groupBy) return;
    const generation = this.generation;
    const { groupBy } = this.filter;
    const query = { ...matchingOf(this.filter), columns: this.columns, group_by: groupBy, limit: 1 };
    const page = await get<JobsPage>("v1/jobs", query);
    if (generation !== this.generation) return this.readGroups();
    this.groups = page.groups ?? [];
    this.isWhole = page.groups_complete ?? true;
    this.isRead = true;
  }

  private replace(change: (row: JobSummary) => JobSummary): void {
    this.opened = new Map(
      [...this.opened].map(([key, { rows, next }]) => [key, { rows: rows.map(change), next }]),
    );
  }

  private toLines(): readonly Line[] {
    return this.groups.flatMap((group): readonly Line[] => {
      const isOpen = this.openKeys.has(group.key);
      const head: Line = { kind: "group", id: `group ${group.key}`, group, isOpen };
      const opened = this.opened.get(group.key);
      if (!isOpen || !opened) return [head];
      const jobs = opened.rows.map((job): Line => ({ kind: "job", id: job.id, job }));
      const more: readonly Line[] =
        opened.next === null ? [] : [{ kind: "more", id: `more ${group.key}`, key: group.key }];
      return [head, ...jobs, ...more];
    });
  }
}

/** Returns each job once: a row may move between two pages while they are read. */
function unique(rows: readonly JobSummary[]): readonly JobSummary[] {
  return [...new Map(rows.map((row) => [row.id, row])).values()];
}
