/** Reads the curves that can be seen, each once, and again where they are out of date; follows their jobs live. */
import { MOST_POINTS, readCurves, type Curve, type Curves } from "../api/curves";
import type { Items, LiveEvent, Watch } from "../live/events";
import type { CurveJob } from "./attempts";
import { Delays } from "./delays";
import { SMOOTH_POINTS } from "./smoothing";
import type { CurveStore } from "./store.svelte";
import { Zoom } from "./zoom";

/** Follows jobs live; returns how to stop. */
export type Follow = (watch: Watch, listener: (event: LiveEvent) => void) => () => void;

/** Reads a job's attempts again. They come with the next `open`. */
export type ReadAttempts = (jobId: string) => Promise<void>;

const POINTS_OF_AN_ANSWER = 100_000;
const AGAIN_MS = 1000;
const OUTGROWN_MS = 250;
/** Curves of a chart that come with all their points; of more, each comes with fewer, so that a chart stays as quick. */
const WHOLE = 10;
const LEAST_POINTS = 300;

export class CurveLoader {
  readonly zoom: Zoom;
  /** Keys whose charts can be seen, each with their number. */
  readonly #wanted = new Map<string, number>();
  readonly #stale = new Set<string>();
  /** Keys that are being read, each with what came live meanwhile. */
  readonly #loading = new Map<string, Items[]>();
  readonly #delays = new Delays();
  #opened = new AbortController();
  #reading = new AbortController();
  #isOpening = false;
  #isPaused = false;
  #unfollow: (() => void) | null = null;

  constructor(
    readonly store: CurveStore,
    readonly follow: Follow,
    readonly readAttempts: ReadAttempts,
  ) {
    this.zoom = new Zoom(store, () => [...this.#wanted.keys()]);
  }

  /** Shows these jobs instead of others: reads which keys they have, and follows them. */
  async open(jobs: readonly CurveJob[]): Promise<void> {
    const isSame = idsOf(jobs).join() === idsOf(this.store.jobs).join();
    this.store.show(jobs);
    if (isSame) return;
    this.close();
    await this.#reopen();
  }

  /** Ends requests, timers and the following. */
  close(): void {
    this.#unfollow?.();
    this.#unfollow = null;
    this.#opened.abort();
    this.#isOpening = false;
    this.zoom.stop();
    this.#abortReading();
    this.#delays.clear();
  }

  /** Sets what the service computes: the smoothing, and whether replaced tails come too. */
  configure(smooth: number, ghost: boolean): void {
    const { store } = this;
    if (smooth === store.smooth && ghost === store.ghost) return;
    store.smooth = smooth;
    store.ghost = ghost;
    for (const key of [...store.loaded(), ...this.#loading.keys()]) this.#stale.add(key);
    this.#loadSoon();
  }

  /** While it is paused, nothing new comes. */
  pause(isPaused: boolean): void {
    if (isPaused === this.#isPaused) return;
    this.#isPaused = isPaused;
    this.#unfollow?.();
    this.#unfollow = null;
    if (!isPaused && this.store.isReady) void this.#reopen();
  }

  /** Says that a chart of this key can be seen. Returns how to take it back. */
  want(key: string): () => void {
    this.#wanted.set(key, (this.#wanted.get(key) ?? 0) + 1);
    this.#loadSoon();
    return () => {
      const left = (this.#wanted.get(key) ?? 1) - 1;
      if (left > 0) this.#wanted.set(key, left);
      else this.#wanted.delete(key);
    };
  }

  /** Reads again which keys there are, and then the curves that can be seen. */
  async #reopen(): Promise<void> {
    this.#opened.abort();
    this.#opened = new AbortController();
    const signal = this.#opened.signal;
    const ids = idsOf(this.store.jobs);
    if (ids.length === 0) return this.#take([]);
    this.#isOpening = true;
    try {
      const { jobs } = await readCurves({ job: ids }, signal);
      if (signal.aborted) return;
      for (const key of this.store.loaded()) this.#stale.add(key);
      this.#take(jobs);
    } catch (error) {
      if (!signal.aborted) this.store.failed(error);
    } finally {
      if (!signal.aborted) this.#isOpening = false;
    }
  }

  #take(jobs: Curves["jobs"]): void {
    this.store.takeKeys(jobs);
    const positions = Object.fromEntries(jobs.map((job) => [job.job_id, job.position]));
    const unfollow = this.#unfollow;
    this.#unfollow =
      this.#isPaused || this.store.jobs.length === 0
        ? null
        : this.follow({ jobs: positions }, (event) => this.#heard(event));
    unfollow?.(); // after the new one, so that the stream goes on
    this.#loadSoon();
  }

  #heard(event: LiveEvent): void {
    if (event.kind === "items") this.#append(event.items);
    // A slow answer is waited for, not asked for anew.
    if (event.kind === "changed" && !this.#isOpening) void this.#reopen();
  }

  #append(items: Items): void {
    for (const [key, late] of this.#loading) if (Object.hasOwn(items.metrics, key)) late.push(items);
    this.#add(items, Object.keys(items.metrics));
  }

  #add(items: Items, keys: readonly string[]): void {
    const id = items.job_id;
    const known = this.store.newestAttempt(id);
    if (this.store.append(items, keys)) this.#loadSoon();
    if (keys.some((key) => this.store.outgrown(key).length > 0))
      this.#delays.soon("outgrown", OUTGROWN_MS, () => this.#readOutgrown());
    const newest = Math.max(...keys.map((key) => items.metrics[key]?.attempt.at(-1) ?? 1));
    if (newest > known) this.#delays.soon(`attempt ${id}`, AGAIN_MS, () => void this.#attemptBegan(id));
  }

  /** Reads attempts and curves again: the service knows which of the older points are replaced. */
  async #attemptBegan(jobId: string): Promise<void> {
    await this.readAttempts(jobId);
    for (const key of this.store.loaded(jobId)) this.#stale.add(key);
    this.#load();
  }

  /** Reads a curve whose points have doubled. All of a job double at once: one at a time, no frame has to wait. */
  #readOutgrown(): void {
    const isRead = (key: string): boolean => this.#loading.has(key) || this.#stale.has(key);
    const isFree = (key: string): boolean => !isRead(key) && this.store.outgrown(key).length > 0;
    const key = [...this.#wanted.keys()].find(isFree);
    if (key !== undefined) void this.#read([key], this.store.outgrown(key).slice(0, 1));
  }

  #loadSoon(): void {
    this.#delays.soon("load", 0, () => this.#load());
  }

  /** Reads the curves of all keys that can be seen and are not there yet, or not as they should be. */
  #load(): void {
    const { store } = this;
    if (!store.isReady || store.jobs.length === 0) return;
    const isNeeded = (key: string): boolean =>
      this.#stale.has(key) || !(store.isLoaded(key) || this.#loading.has(key));
    const keys = [...this.#wanted.keys()].filter((key) => store.keys.has(key) && isNeeded(key));
    if ([...this.#loading.keys()].some((key) => this.#stale.has(key))) this.#abortReading();
    const points = pointsOf(store.jobs.length);
    const most = Math.max(1, Math.floor(POINTS_OF_AN_ANSWER / (points * store.jobs.length)));
    for (let i = 0; i < keys.length; i += most) void this.#read(keys.slice(i, i + most));
  }

  async #read(keys: readonly string[], only: readonly string[] | null = null): Promise<void> {
    const signal = this.#reading.signal;
    for (const key of keys) {
      this.#stale.delete(key);
      this.#loading.set(key, []);
    }
    const { smooth, ghost, jobs } = this.store;
    try {
      const query = { job: only ?? idsOf(jobs), key: keys, smooth, smooth_points: SMOOTH_POINTS };
      const { series } = await readCurves(
        { ...query, max_points: pointsOf(jobs.length), hidden: ghost },
        signal,
      );
      if (!signal.aborted) this.#put(keys, series, smooth, only !== null);
    } catch (error) {
      for (const key of keys) this.#stale.add(key);
      if (!signal.aborted) this.store.failed(error);
    } finally {
      if (!signal.aborted) for (const key of keys) this.#loading.delete(key);
    }
  }

  #put(keys: readonly string[], series: readonly Curve[], smooth: number, isPart: boolean): void {
    for (const key of keys) {
      const curves = series.filter((curve) => curve.key === key);
      if (isPart) this.store.refresh(key, curves, smooth);
      else this.store.put(key, curves, smooth);
      for (const items of this.#loading.get(key) ?? []) this.#add(items, [key]);
    }
    this.zoom.again();
  }

  #abortReading(): void {
    for (const key of this.#loading.keys()) this.#stale.add(key);
    this.#loading.clear();
    this.#reading.abort();
    this.#reading = new AbortController();
  }
}

function pointsOf(jobs: number): number {
  return Math.max(LEAST_POINTS, Math.round(MOST_POINTS * Math.min(1, WHOLE / jobs)));
}

function idsOf(jobs: readonly CurveJob[]): readonly string[] {
  return jobs.map((job) => job.id);
}
