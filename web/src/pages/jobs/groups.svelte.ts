/** Groups of the listed jobs, and the jobs of those that are open. */
import { type ApiError, get } from "../../api/client";
import { Reading } from "../../api/reading.svelte";
import type { JobGroup, JobsPage, JobSummary } from "../../api/wire";
import { queryOf, type Filter } from "./filter";
import { PagedJobs } from "./paged.svelte";

const PAGE = 200;
/** The group of the jobs without a value. */
export const WITHOUT = "-";

/** A row of the table: a group, a job, or what reads more of a group. */
export type Line =
  | { readonly kind: "group"; readonly id: string; readonly group: JobGroup; readonly isOpen: boolean }
  | { readonly kind: "more"; readonly id: string; readonly key: string }
  | { readonly kind: "job"; readonly id: string; readonly job: JobSummary };

export class GroupList {
  groups = $state.raw<readonly JobGroup[]>([]);
  isWhole = $state(true);
  isRead = $state(false);

  /** The jobs of groups that are open, or were: by their keys. */
  private opened = $state.raw<ReadonlyMap<string, PagedJobs>>(new Map());
  private openKeys = $state.raw<ReadonlySet<string>>(new Set());
  private filter: Filter | null = null;
  private columns: readonly string[] = [];
  private readonly reading = new Reading((signal) => this.readAll(signal));

  /** The groups, each open one with its jobs. */
  readonly lines = $derived(this.toLines());

  get failure(): ApiError | null {
    const failed = [...this.opened.values()].find(({ failure }) => failure !== null);
    return this.reading.failure ?? failed?.failure ?? null;
  }

  get jobs(): readonly JobSummary[] {
    return this.open().flatMap(({ rows }) => rows);
  }

  /** Whether a job of them runs: values of columns grow without a word of the stream. */
  get isLive(): boolean {
    return this.groups.some(({ counts }) => (counts.running ?? 0) > 0);
  }

  /** Groups what matches by `filter.groupBy`; `open` are the keys of the groups that show their jobs. */
  show(filter: Filter, columns: readonly string[], open: readonly string[]): void {
    const isOther = JSON.stringify([this.filter, this.columns]) !== JSON.stringify([filter, columns]);
    this.filter = filter;
    this.columns = columns;
    this.openKeys = new Set(open);
    if (isOther) this.forget();
    const added = open.filter((key) => !this.opened.has(key));
    if (!isOther && added.length === 0) return;
    this.opened = new Map([...this.opened, ...added.map((key) => [key, this.pagedOf(key)] as const)]);
    void this.reading.read();
  }

  /** Reads again what is shown. */
  again(): void {
    this.reading.again();
  }

  close(): void {
    this.reading.close();
    this.forget();
  }

  heard(job: JobSummary): void {
    for (const jobs of this.opened.values()) jobs.heard(job);
  }

  change(id: string, changes: Partial<JobSummary>): void {
    for (const jobs of this.opened.values()) jobs.change(id, changes);
  }

  /** Reads the next jobs of a group. */
  async more(key: string): Promise<void> {
    await this.opened.get(key)?.more(PAGE);
  }

  private open(): readonly PagedJobs[] {
    return [...this.openKeys].flatMap((key) => this.opened.get(key) ?? []);
  }

  private forget(): void {
    for (const jobs of this.opened.values()) jobs.close();
    this.opened = new Map();
  }

  private pagedOf(key: string): PagedJobs {
    return new PagedJobs(() => {
      if (this.filter === null) return {};
      const { groupBy } = this.filter;
      return { ...queryOf(this.filter), columns: this.columns, group_by: groupBy, in_group: key };
    }, PAGE);
  }

  private async readAll(signal: AbortSignal): Promise<void> {
    await Promise.all([this.readGroups(signal), ...this.open().map((jobs) => jobs.read(signal))]);
  }

  private async readGroups(signal: AbortSignal): Promise<void> {
    if (!this.filter?.groupBy) return;
    const { groupBy } = this.filter;
    const query = { ...this.filter.conditions, columns: this.columns, group_by: groupBy, limit: 1 };
    const page = await get<JobsPage>("v1/jobs", query, signal);
    if (signal.aborted) return;
    this.groups = page.groups ?? [];
    this.isWhole = page.groups_complete ?? true;
    this.isRead = true;
  }

  private toLines(): readonly Line[] {
    return this.groups.flatMap((group): readonly Line[] => {
      const isOpen = this.openKeys.has(group.key);
      const head: Line = { kind: "group", id: `group ${group.key}`, group, isOpen };
      const opened = this.opened.get(group.key);
      if (!isOpen || !opened) return [head];
      const jobs = opened.rows.map((job): Line => ({ kind: "job", id: job.id, job }));
      const more: readonly Line[] = opened.hasMore
        ? [{ kind: "more", id: `more ${group.key}`, key: group.key }]
        : [];
      return [head, ...jobs, ...more];
    });
  }
}
