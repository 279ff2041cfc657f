/** The curves of one page: what is loaded, what is asked for, and what comes live. */
import { ApiError } from "../api/client";
import { readAttempts, readCurves, type Attempt, type Curve, type Curves } from "../api/curves";
import type { Items, LiveEvent, Watch } from "../live/events";
import { Place, type XKind } from "./axis";
import { colourOf, type Colour } from "./colours";
import { Columns, numberOf } from "./columns";
import { extentOf, Line } from "./line";
import type { Span } from "./range";

/** A job whose curves are shown. */
export interface BoardJob {
  readonly id: string;
  readonly name: string;
  /** Steps of one epoch, or null where they are unknown. */
  readonly perEpoch: number | null;
}

/** Follows jobs live; returns how to stop. */
export type Follow = (watch: Watch, listener: (event: LiveEvent) => void) => () => void;

const MOST_POINTS = 1500;
const POINTS_OF_AN_ANSWER = 100_000;
const AGAIN_MS = 1000;
const JUST_OPENED_MS = 3000;
const SETTLED_MS = 150;

interface Series {
  columns: Columns;
  /** Finer rows of a part, in which the page is zoomed. */
  detail: { columns: Columns; from: number; to: number } | null;
  ghosts: Columns[];
}

export class Board {
  /** Each key with the number of jobs that have it. */
  keys = $state.raw<ReadonlyMap<string, number>>(new Map());
  isReady = $state(false);
  failure = $state.raw<ApiError | null>(null);
  /** Counts changes of what is not live: jobs, attempts, loaded series. */
  version = $state(0);

  #jobs: readonly BoardJob[] = [];
  #attempts = new Map<string, readonly Attempt[]>();
  #series = new Map<string, Map<string, Series>>();
  #stale = new Set<string>();
  #loading = new Set<string>();
  #pending = new Map<string, Items[]>();
  #keysOf = new Map<string, Set<string>>();
  #wanted = new Map<string, number>();
  #listeners = new Set<() => void>();
  #smooth = 0;
  #ghost = false;
  #zoom: { kind: XKind; span: Span } | null = null;
  #opened = new AbortController();
  #reading = new AbortController();
  #zooming = new AbortController();
  #unfollow: (() => void) | null = null;
  #places = new Map<string, Place>();
  #colours = new Map<string, Colour>();
  #timers = new Map<string, ReturnType<typeof setTimeout>>();
  #isPaused = false;
  #isOpening = false;
  #openedAt = 0;

  constructor(readonly follow: Follow) {}

  /** Shows these jobs instead of others: reads which keys they have, and follows them. */
  async open(jobs: readonly BoardJob[]): Promise<void> {
    const isSame = jobs.map((job) => job.id).join() === this.#jobs.map((job) => job.id).join();
    this.#jobs = jobs;
    this.#places.clear();
    this.#colours.clear();
    this.version += 1;
    if (isSame) return this.#changed();
    this.#stop();
    await this.#reopen();
  }

  /** Ends requests, timers and the following. */
  close(): void {
    this.#stop();
    this.#listeners.clear();
  }

  /** Sets what the service computes: the smoothing, and whether replaced tails come too. */
  configure(smooth: number, ghost: boolean): void {
    if (smooth === this.#smooth && ghost === this.#ghost) return;
    this.#smooth = smooth;
    this.#ghost = ghost;
    for (const key of this.#series.keys()) this.#stale.add(key);
    for (const key of this.#loading) this.#stale.add(key);
    this.#soon("load", 0, () => this.#load());
  }

  /** Sets the part of the x axis that is shown, for which finer rows are read. */
  zoom(kind: XKind, span: Span | null): void {
    this.#zoom = span && { kind, span };
    this.#zooming.abort();
    if (span) this.#soon("zoom", SETTLED_MS, () => void this.#readDetail());
    this.#changed();
  }

  pause(isPaused: boolean): void {
    if (isPaused === this.#isPaused) return;
    this.#isPaused = isPaused;
    this.#unfollow?.();
    this.#unfollow = null;
    if (!isPaused && this.isReady) void this.#reopen();
  }

  /** Says that a chart of this key can be seen. Returns how to take it back. */
  want(key: string): () => void {
    this.#wanted.set(key, (this.#wanted.get(key) ?? 0) + 1);
    this.#soon("load", 0, () => this.#load());
    return () => {
      const left = (this.#wanted.get(key) ?? 1) - 1;
      if (left > 0) this.#wanted.set(key, left);
      else this.#wanted.delete(key);
    };
  }

  /** Calls the listener when there is something new to draw. Returns how to stop. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  isLoaded(key: string): boolean {
    return this.#series.has(key);
  }

  /** Returns the curves of a key, one for each job that has it. */
  lines(key: string, kind: XKind, shown: Span | null = null): readonly Line[] {
    const found: Line[] = [];
    for (const job of this.#jobs) {
      const series = this.#series.get(key)?.get(job.id);
      if (!series) continue;
      const { columns, ghosts } = series;
      const place = this.#placeOf(job, kind, columns.time[0] ?? 0);
      const whole = new Line(
        job.id,
        job.name,
        this.colour(job.id),
        columns,
        place,
        this.#ghost ? ghosts : [],
      );
      found.push(shown && series.detail ? finer(whole, series.detail, shown) : whole);
    }
    return found;
  }

  /** Returns the colour of a job. Jobs that are shown together differ in it. */
  colour(jobId: string): Colour {
    let found = this.#colours.get(jobId);
    if (!found)
      this.#colours.set(
        jobId,
        (found = colourOf(
          jobId,
          this.#jobs.map((job) => job.id),
        )),
      );
    return found;
  }

  /** Says whether any of the jobs has more than one attempt. */
  hasSeams(): boolean {
    return this.#jobs.some((job) => (this.#attempts.get(job.id)?.length ?? 0) > 1);
  }

  #placeOf(job: BoardJob, kind: XKind, origin: number): Place {
    const name = `${kind} ${job.id}`;
    let found = this.#places.get(name);
    if (!found)
      this.#places.set(
        name,
        (found = new Place(kind, this.#attempts.get(job.id) ?? [], job.perEpoch, origin)),
      );
    return found;
  }

  /** Returns the range of x that all loaded curves cover together. */
  extent(kind: XKind): Span | null {
    return extentOf([...this.#series.keys()].flatMap((key) => this.lines(key, kind)));
  }

  /** Reads again which keys and attempts there are, and then the curves that can be seen. */
  async #reopen(): Promise<void> {
    this.#openedAt = Date.now();
    this.#opened.abort();
    this.#opened = new AbortController();
    const signal = this.#opened.signal;
    const ids = this.#jobs.map((job) => job.id);
    if (ids.length === 0) return this.#take([]);
    this.#isOpening = true;
    try {
      const [curves] = await Promise.all([
        readCurves({ job: ids }, signal),
        ...ids.map((id) => this.#readAttempts(id, signal)),
      ]);
      if (signal.aborted) return;
      for (const key of this.#series.keys()) this.#stale.add(key);
      this.#take(curves.jobs);
    } catch (error) {
      this.#failed(error, signal);
    } finally {
      if (!signal.aborted) this.#isOpening = false;
    }
  }

  #take(jobs: Curves["jobs"]): void {
    this.#keysOf.clear();
    for (const job of jobs) this.#keysOf.set(job.job_id, new Set(job.keys.map((found) => found.key)));
    this.#countKeys();
    const ids = new Set(this.#jobs.map((job) => job.id));
    for (const [key, series] of this.#series) {
      for (const id of series.keys()) if (!ids.has(id)) series.delete(id);
      if (!this.keys.has(key)) this.#series.delete(key);
    }
    this.isReady = true;
    this.failure = null;
    this.version += 1;
    const positions = Object.fromEntries(jobs.map((job) => [job.job_id, job.position]));
    const unfollow = this.#unfollow;
    this.#unfollow =
      this.#isPaused || ids.size === 0
        ? null
        : this.follow({ jobs: positions }, (event) => this.#heard(event));
    unfollow?.(); // after the new one, so that the stream goes on
    this.#soon("load", 0, () => this.#load());
    this.#changed();
  }

  #heard(event: LiveEvent): void {
    if (event.kind === "items") this.#append(event.items);
    // The stream also says so when it begins, right after all was read. A slow answer is waited for, not asked for anew.
    const isNew = !this.#isOpening && Date.now() - this.#openedAt > JUST_OPENED_MS;
    if (event.kind === "changed" && isNew) void this.#reopen();
  }

  /** Reads the curves of all keys that can be seen and are not there yet, or not as they should be. */
  #load(): void {
    if (!this.isReady || this.#jobs.length === 0) return;
    const isNeeded = (key: string): boolean =>
      this.#stale.has(key) || !(this.#series.has(key) || this.#loading.has(key));
    const keys = [...this.#wanted.keys()].filter((key) => this.keys.has(key) && isNeeded(key));
    if (this.#stale.size > 0 && [...this.#loading].some((key) => this.#stale.has(key))) this.#abortReading();
    const most = Math.max(1, Math.floor(POINTS_OF_AN_ANSWER / (MOST_POINTS * this.#jobs.length)));
    for (let i = 0; i < keys.length; i += most) void this.#read(keys.slice(i, i + most));
  }

  async #read(keys: readonly string[]): Promise<void> {
    const signal = this.#reading.signal;
    for (const key of keys) {
      this.#stale.delete(key);
      this.#loading.add(key);
    }
    const smooth = this.#smooth;
    try {
      const query = { job: this.#jobs.map((job) => job.id), key: keys, smooth, max_points: MOST_POINTS };
      const { series } = await readCurves({ ...query, hidden: this.#ghost }, signal);
      if (signal.aborted) return;
      for (const key of keys)
        this.#put(
          key,
          series.filter((curve) => curve.key === key),
          smooth,
        );
      this.failure = null;
    } catch (error) {
      for (const key of keys) this.#stale.add(key);
      this.#failed(error, signal);
    } finally {
      if (!signal.aborted) for (const key of keys) this.#loading.delete(key);
    }
  }

  #put(key: string, curves: readonly Curve[], smooth: number): void {
    const found = new Map<string, Series>();
    for (const curve of curves.filter((each) => !each.hidden))
      found.set(curve.job_id, { columns: Columns.of(curve, smooth), detail: null, ghosts: [] });
    for (const curve of curves.filter((each) => each.hidden))
      found.get(curve.job_id)?.ghosts.push(Columns.of(curve, smooth));
    this.#series.set(key, found);
    this.#loading.delete(key);
    for (const items of this.#pending.get(key) ?? []) this.#appendTo(key, items);
    this.#pending.delete(key);
    this.version += 1;
    this.#changed();
    if (this.#zoom) this.#soon("zoom", 0, () => void this.#readDetail());
  }

  #append(items: Items): void {
    const keys = Object.keys(items.metrics);
    if (keys.length === 0) return;
    const known = this.#keysOf.get(items.job_id) ?? new Set();
    this.#keysOf.set(items.job_id, known);
    if (keys.some((key) => !known.has(key))) {
      for (const key of keys) known.add(key);
      this.#countKeys();
      this.#soon("load", 0, () => this.#load());
    }
    for (const key of keys) {
      if (this.#loading.has(key)) this.#pending.set(key, [...(this.#pending.get(key) ?? []), items]);
      if (this.#series.has(key)) this.#appendTo(key, items);
    }
    this.#changed();
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
      all.set(items.job_id, (series = { columns: new Columns(this.#smooth), detail: null, ghosts: [] }));
    const known = this.#attempts.get(items.job_id)?.at(-1)?.number ?? 1;
    for (let i = 0; i < points.step.length; i++) {
      const [step, attempt] = [points.step[i] ?? 0, points.attempt[i] ?? 1];
      const value = numberOf(points.value[i]);
      series.columns.append(step, points.time[i] ?? 0, attempt, value);
      if (series.detail && step <= series.detail.to)
        series.detail.columns.append(step, points.time[i] ?? 0, attempt, value);
      if (attempt > known)
        this.#soon(`attempt ${items.job_id}`, AGAIN_MS, () => void this.#attemptBegan(items.job_id));
    }
  }

  /** Reads attempts and series again: the service knows which of the older points are replaced. */
  async #attemptBegan(jobId: string): Promise<void> {
    try {
      await this.#readAttempts(jobId, this.#opened.signal);
    } catch (error) {
      this.#failed(error, this.#opened.signal);
    }
    for (const [key, series] of this.#series) if (series.has(jobId)) this.#stale.add(key);
    this.#load();
  }

  async #readAttempts(jobId: string, signal: AbortSignal): Promise<void> {
    this.#attempts.set(jobId, await readAttempts(jobId, signal));
    this.#places.clear();
    this.version += 1;
  }

  async #readDetail(): Promise<void> {
    const zoom = this.#zoom;
    if (!zoom) return;
    this.#zooming.abort();
    this.#zooming = new AbortController();
    const signal = this.#zooming.signal;
    const keys = [...this.#wanted.keys()].filter((key) => this.#isCoarse(key));
    const range = stepsWithin(
      keys.flatMap((key) => this.lines(key, zoom.kind)),
      zoom.span,
    );
    if (keys.length === 0 || !range) return;
    const query = {
      job: this.#jobs.map((job) => job.id),
      key: keys,
      smooth: this.#smooth,
      max_points: MOST_POINTS,
    };
    try {
      const { series } = await readCurves(
        { ...query, from_step: range.from, to_step: range.to === Infinity ? null : range.to },
        signal,
      );
      if (signal.aborted) return;
      for (const curve of series) {
        const found = this.#series.get(curve.key)?.get(curve.job_id);
        if (!found) continue;
        found.detail = { columns: Columns.of(curve, this.#smooth), ...range };
        if (range.to === Infinity) catchUp(found.detail.columns, found.columns);
      }
      this.#changed();
    } catch (error) {
      this.#failed(error, signal);
    }
  }

  #isCoarse(key: string): boolean {
    return [...(this.#series.get(key)?.values() ?? [])].some(
      ({ columns }) => columns.points > columns.length,
    );
  }

  #failed(error: unknown, signal: AbortSignal): void {
    if (signal.aborted) return;
    this.failure = error instanceof ApiError ? error : new ApiError(0, "unknown", String(error));
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }

  /** Acts once after the wait, however often it is asked for meanwhile: live points must not put it off. */
  #soon(name: string, wait: number, act: () => void): void {
    if (this.#timers.has(name)) return;
    const timer = setTimeout(() => {
      this.#timers.delete(name);
      act();
    }, wait);
    this.#timers.set(name, timer);
  }

  #abortReading(): void {
    for (const key of this.#loading) this.#stale.add(key);
    this.#loading.clear();
    this.#reading.abort();
    this.#reading = new AbortController();
  }

  #stop(): void {
    this.#unfollow?.();
    this.#unfollow = null;
    this.#opened.abort();
    this.#isOpening = false;
    this.#zooming.abort();
    this.#abortReading();
    this.#pending.clear();
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
  }
}

/** Returns the line with its finer rows where those hold all that is shown. */
function finer(line: Line, detail: NonNullable<Series["detail"]>, shown: Span): Line {
  const from = stepAt(line, shown.min);
  const to = stepAt(line, shown.max);
  if (from < detail.from || to > detail.to) return line;
  return new Line(line.jobId, line.name, line.colour, detail.columns, line.place, line.ghosts, line.columns);
}

/** Returns the steps that lie in a range of x in any line, with a little on both sides. It has no end where it reaches the newest. */
function stepsWithin(lines: readonly Line[], x: Span): { from: number; to: number } | null {
  let [from, to] = [Infinity, -Infinity];
  for (const line of lines) {
    const last = line.columns.length - 1;
    if (last < 0) continue;
    from = Math.min(from, stepAt(line, x.min));
    to = Math.max(to, x.max >= line.x(last) ? Infinity : stepAt(line, x.max));
  }
  if (!(from <= to)) return null;
  const room = Math.ceil((Math.min(to, from + 1e6) - from) * 0.05) + 1;
  return { from: Math.max(0, Math.floor(from) - room), to: Math.ceil(to) + room };
}

/** Returns the step at x, between the rows beside it. */
function stepAt(line: Line, x: number): number {
  const { step, length } = line.columns;
  const after = line.columns.firstAtOrAfter(x, (row) => line.x(row));
  if (after === 0 || after === length) return step[Math.min(after, length - 1)] ?? 0;
  const [left, right] = [step[after - 1] ?? 0, step[after] ?? 0];
  return left + ((x - line.x(after - 1)) / (line.x(after) - line.x(after - 1))) * (right - left);
}

/** Adds the rows that came live while the finer ones were read. */
function catchUp(detail: Columns, columns: Columns): void {
  const last = detail.step[detail.length - 1] ?? -Infinity;
  for (let i = columns.firstAtOrAfter(last, (row) => columns.step[row] ?? 0); i < columns.length; i++)
    detail.append(
      columns.step[i] ?? 0,
      columns.time[i] ?? 0,
      columns.attempt[i] ?? 1,
      columns.mean[i] ?? NaN,
    );
}
