/** The curves of one page: what was read, and what came live since. */
import { type ApiError, failureOf } from "../api/client";
import type { Curve, Curves as Answer } from "../api/curves";
import type { Items } from "../live/events";
import { Attempts, type CurveJob } from "./attempts";
import type { Place, XKind } from "./axis";
import { colourOfPart, coloursOf, type Colour } from "./colours";
import { Columns, numberOf } from "./columns";
import { catchUp, finer, type Detail, type Steps } from "./detail";
import { extentOf, Line } from "./line";
import { partOf } from "./panels";
import type { Span } from "./span";

/** A curve of one job. */
interface Series {
  readonly columns: Columns;
  /** Tails that a later attempt replaced. */
  readonly ghosts: Columns[];
  detail: Detail | null;
}

/** Curves that charts draw. */
export interface Curves {
  isLoaded(key: string): boolean;
  lines(keys: readonly string[], kind: XKind, shown: Span | null): readonly Line[];
  /** Returns the range of x that all of them cover together. */
  range(kind: XKind): Span;
  /** Calls the listener when there is something new to draw. Returns how to stop. */
  listen(listener: () => void): () => void;
}

export class CurveStore implements Curves {
  /** Each key with the number of jobs that have it. */
  keys = $state.raw<ReadonlyMap<string, number>>(new Map());
  isReady = $state(false);
  failure = $state.raw<ApiError | null>(null);
  /** Counts changes of what is not live: jobs, attempts, curves that were read. */
  version = $state(0);

  jobs: readonly CurveJob[] = [];
  /** Weight of the moving average that the service computes, of a curve of `SMOOTH_POINTS`. */
  smooth = 0;
  /** Whether tails that a later attempt replaced are shown. */
  ghost = false;
  readonly attempts = new Attempts();

  readonly #series = new Map<string, Map<string, Series>>();
  #keysOf = new Map<string, Set<string>>();
  #colours: ReadonlyMap<string, Colour> = new Map();
  readonly #listeners = new Set<() => void>();
  /** What `range` found since the last change. */
  readonly #ranges = new Map<string, Span>();

  /** Shows these jobs instead of others, or the same with another name or newer attempts. */
  show(jobs: readonly CurveJob[]): void {
    this.jobs = jobs;
    this.attempts.take(jobs);
    this.#colours = coloursOf(jobs.map(({ id }) => id));
    this.version += 1;
    this.changed();
  }

  /** Takes over which keys the jobs have. Curves of other jobs and keys go. */
  takeKeys(jobs: Answer["jobs"]): void {
    this.#keysOf = new Map(jobs.map(keysOf));
    this.#countKeys();
    this.#leaveOut();
    this.isReady = true;
    this.failure = null;
    this.version += 1;
    this.changed();
  }

  /** Takes over which keys jobs have that are shown beside the others. Curves of jobs that are not shown go. */
  addKeys(jobs: Answer["jobs"]): void {
    const shown = new Set(this.jobs.map(({ id }) => id));
    this.#keysOf = new Map([...this.#keysOf, ...jobs.map(keysOf)].filter(([id]) => shown.has(id)));
    this.#countKeys();
    this.#leaveOut();
    this.version += 1;
    this.changed();
  }

  /** Takes over all curves of a key. */
  put(key: string, curves: readonly Curve[], smooth: number): void {
    this.#series.set(key, seriesOf(curves, smooth));
    this.failure = null;
    this.version += 1;
    this.changed();
  }

  /** Takes over curves of some jobs in place of those that it has. They are drawn as live points are, in their turn. */
  refresh(key: string, curves: readonly Curve[], smooth: number): void {
    const found = this.#series.get(key);
    for (const [id, series] of seriesOf(curves, smooth)) found?.set(id, series);
    this.changed();
  }

  /** Takes over finer rows of a part of curves. */
  putDetail(curves: readonly Curve[], steps: Steps): void {
    for (const curve of curves) {
      const found = this.#series.get(curve.key)?.get(curve.job_id);
      if (!found) continue;
      found.detail = { columns: Columns.of(curve, curve.smooth ?? this.smooth), ...steps };
      if (steps.to === Infinity) catchUp(found.detail.columns, found.columns);
    }
    this.changed();
  }

  /** Adds what a job has stored, of all its keys or of some. Returns whether there is one that was not known. */
  append(items: Items, keys: readonly string[] = Object.keys(items.metrics)): boolean {
    if (keys.length === 0) return false;
    const known = this.#keysOf.get(items.job_id) ?? new Set();
    const hasNew = keys.some((key) => !known.has(key));
    if (hasNew) {
      this.#keysOf.set(items.job_id, new Set([...known, ...keys]));
      this.#countKeys();
    }
    for (const key of keys) this.#appendTo(key, items);
    this.changed();
    return hasNew;
  }

  /** Says why the newest request failed. */
  failed(error: unknown): void {
    this.failure = failureOf(error);
  }

  /** Calls the listener when there is something new to draw. Returns how to stop. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Tells that there is something new to draw. */
  changed(): void {
    this.#ranges.clear();
    for (const listener of this.#listeners) listener();
  }

  isLoaded(key: string): boolean {
    return this.#series.has(key);
  }

  /** Returns the keys of which there are curves, of one job or of any. */
  loaded(jobId: string | null = null): readonly string[] {
    const all = [...this.#series];
    return all.filter(([, series]) => jobId === null || series.has(jobId)).map(([key]) => key);
  }

  /** Returns the newest attempt of which there are curves; where there are none, that which is known. */
  newestAttempt(jobId: string): number {
    const columns = [...this.#series.values()].flatMap((series) => series.get(jobId)?.columns ?? []);
    const newest = Math.max(...columns.map(({ attempt, length }) => attempt[length - 1] ?? 0), 0);
    return newest || this.attempts.newest(jobId);
  }

  /** Returns the curve with the most rows; null before there is one. */
  longest(): Columns | null {
    const all = [...this.#series.values()].flatMap((series) => [...series.values()]);
    return all.reduce<Columns | null>(
      (most, { columns }) => (columns.length > (most?.length ?? 0) ? columns : most),
      null,
    );
  }

  /** Says whether rows of a key stand for more than one point. */
  isCoarse(key: string): boolean {
    return [...(this.#series.get(key)?.values() ?? [])].some(
      ({ columns }) => columns.points > columns.length,
    );
  }

  /** Says whether a job's curve of this key has doubled since it was read: the service would smooth it more. */
  isOutgrown(key: string, jobId: string): boolean {
    return this.#series.get(key)?.get(jobId)?.columns.isOutgrown() ?? false;
  }

  /**
   * Returns the curves of one chart, for each key one of each job that has it. Finer rows are taken where they hold all
   * of `shown`.
   */
  lines(keys: readonly string[], kind: XKind, shown: Span | null = null): readonly Line[] {
    return keys.flatMap((key) => this.#linesOf(key, kind, shown, keys.length > 1 ? partOf(key) : null));
  }

  /** Returns the range of x that all loaded curves cover together. Steps and times that begin near 0 begin at 0. */
  range(kind: XKind): Span {
    const name = `${kind} ${this.ghost}`;
    const known = this.#ranges.get(name);
    if (known) return known;
    const { min, max } = extentOf(this.#placed(kind)) ?? { min: 0, max: 1 };
    const found = { min: kind !== "wall" && min > 0 && min < max * 0.1 ? 0 : min, max };
    this.#ranges.set(name, found);
    return found;
  }

  /** Returns the colour of a job. Jobs that are shown together differ in it. */
  colour(jobId: string): Colour {
    return this.#colours.get(jobId) ?? { slot: 1, dash: [] };
  }

  /** Yields all rows with their places: a line for each curve would be too much. */
  *#placed(kind: XKind): Generator<readonly [Place, Columns]> {
    for (const series of this.#series.values())
      for (const [id, { columns, ghosts }] of series) {
        const place = this.attempts.place(id, kind, columns.time[0] ?? 0);
        yield [place, columns];
        if (this.ghost) for (const ghost of ghosts) yield [place, ghost];
      }
  }

  #linesOf(key: string, kind: XKind, shown: Span | null, part: string | null): readonly Line[] {
    const found: Line[] = [];
    for (const { id, name: job } of this.jobs) {
      const series = this.#series.get(key)?.get(id);
      if (!series) continue;
      const { columns, ghosts } = series;
      const whole = new Line({
        ...{ jobId: id, job, key, part, columns },
        name: part === null ? job : this.jobs.length === 1 ? part : `${job} · ${part}`,
        colour: colourOfPart(this.colour(id), part),
        place: this.attempts.place(id, kind, columns.time[0] ?? 0),
        ghosts: this.ghost ? ghosts : [],
      });
      found.push(shown && series.detail ? finer(whole, series.detail, shown) : whole);
    }
    return found;
  }

  /** Takes away the curves of other jobs and keys. */
  #leaveOut(): void {
    const ids = new Set(this.jobs.map((job) => job.id));
    for (const [key, series] of this.#series) {
      for (const id of series.keys()) if (!ids.has(id)) series.delete(id);
      if (!this.keys.has(key)) this.#series.delete(key);
    }
  }

  #countKeys(): void {
    const counts = new Map<string, number>();
    for (const keys of this.#keysOf.values())
      for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1);
    this.keys = counts;
  }

  #appendTo(key: string, items: Items): void {
    const points = items.metrics[key];
    const all = this.#series.get(key);
    if (!points || !all) return;
    let series = all.get(items.job_id);
    if (!series)
      all.set(items.job_id, (series = { columns: new Columns(this.smooth), detail: null, ghosts: [] }));
    for (let i = 0; i < points.step.length; i++) {
      const [step, time, attempt] = [points.step[i] ?? 0, points.time[i] ?? 0, points.attempt[i] ?? 1];
      const value = numberOf(points.value[i]);
      series.columns.append(step, time, attempt, value);
      if (series.detail && step <= series.detail.to) series.detail.columns.append(step, time, attempt, value);
    }
  }
}

function keysOf(job: Answer["jobs"][number]): readonly [string, Set<string>] {
  return [job.job_id, new Set(job.keys.map(({ key }) => key))];
}

function seriesOf(curves: readonly Curve[], smooth: number): Map<string, Series> {
  const found = new Map<string, Series>();
  for (const curve of curves.filter((each) => !each.hidden))
    found.set(curve.job_id, { columns: Columns.of(curve, curve.smooth ?? smooth), detail: null, ghosts: [] });
  for (const curve of curves.filter((each) => each.hidden))
    found.get(curve.job_id)?.ghosts.push(Columns.of(curve, 0));
  return found;
}
