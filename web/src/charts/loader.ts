/** Reads the curves that can be seen, each once, and again where they are out of date; follows their jobs live. */
import { JOBS_OF_AN_ANSWER, MOST_POINTS, readCurves, type Curve, type Curves } from "../api/curves";
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
const LEAST_POINTS = 100;

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
  /** Of each job the place up to which all that it stored has come. */
  #positions = new Map<string, number>();

  constructor(
    readonly store: CurveStore,
    readonly follow: Follow,
    readonly readAttempts: ReadAttempts,
  ) {
    this.zoom = new Zoom(store, () => [...this.#wanted.keys()]);
  }

  /** Shows these jobs instead of others: reads which keys they have, and follows them. Those that stay are not read again. */
  async open(jobs: readonly CurveJob[]): Promise<void> {
    const before = new Set(idsOf(this.store.jobs));
    const added = idsOf(jobs).filter((id) => !before.has(id));
    const isSame = added.length === 0 && jobs.length === before.size;
    this.store.show(jobs);
    if (isSame) return;
    if (this.store.isReady && !this.#isOpening && added.length < jobs.length) return this.#extend(added);
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

  /** Reads which keys jobs have that come beside the others, follows them too, and reads their curves. */
  async #extend(added: readonly string[]): Promise<void> {
    const { store } = this;
    const signal = this.#opened.signal;
    try {
      const jobs = added.length > 0 ? (await readCurves({ job: added }, signal)).jobs : [];
      if (signal.aborted) return;
      store.addKeys(jobs);
      if (added.length === 0) return;
      for (const { job_id, position } of jobs) this.#positions.set(job_id, position);
      this.#followAll();
      for (const keys of this.#portions(store.loaded())) void this.#read(keys, added);
    } catch (error) {
      if (!signal.aborted) store.failed(error);
    }
  }

  #take(jobs: Curves["jobs"]): void {
    this.store.takeKeys(jobs);
    this.#positions = new Map(jobs.map((job) => [job.job_id, job.position]));
    this.#followAll();
    this.#loadSoon();
  }

  /** Follows the shown jobs that may go on, each from where its curves are. */
  #followAll(): void {
    const followed = this.store.jobs.filter(({ id, isEnded }) => !isEnded && this.#positions.has(id));
    const positions = Object.fromEntries(followed.map(({ id }) => [id, this.#positions.get(id) ?? 0]));
    const unfollow = this.#unfollow;
    this.#unfollow =
      this.#isPaused || followed.length === 0
        ? null
        : this.follow({ jobs: positions }, (event) => this.#heard(event));
    unfollow?.(); // after the new one, so that the stream goes on
  }

  #heard(event: LiveEvent): void {
    if (event.kind === "items") this.#append(event.items);
    // A slow answer is waited for, not asked for anew.
    if (event.kind === "changed" && !this.#isOpening) void this.#reopen();
  }

  #append(items: Items): void {
    if (!this.#positions.has(items.job_id)) return;
    this.#positions.set(items.job_id, items.position);
    for (const [key, late] of this.#loading) if (Object.hasOwn(items.metrics, key)) late.push(items);
    this.#add(items, Object.keys(items.metrics));
  }

  #add(items: Items, keys: readonly string[]): void {
    const id = items.job_id;
    const known = this.store.newestAttempt(id);
    if (this.store.append(items, keys)) this.#loadSoon();
    if (keys.some((key) => this.store.isOutgrown(key, id))) this.#readOutgrownSoon();
    const newest = Math.max(...keys.map((key) => items.metrics[key]?.attempt.at(-1) ?? 1));
    if (newest > known) this.#delays.soon(`attempt ${id}`, AGAIN_MS, () => void this.#attemptBegan(id));
  }

  /** Reads attempts and curves again: the service knows which of the older points are replaced. */
  async #attemptBegan(jobId: string): Promise<void> {
    await this.readAttempts(jobId);
    for (const key of this.store.loaded(jobId)) this.#stale.add(key);
    this.#load();
  }

  #readOutgrownSoon(): void {
    this.#delays.soon("outgrown", OUTGROWN_MS, () => void this.#readOutgrown());
  }

  /** Reads a curve whose points have doubled, then the next one. All of a job double at once: no frame has to wait for many. */
  async #readOutgrown(): Promise<void> {
    const isRead = (key: string): boolean => this.#loading.has(key) || this.#stale.has(key);
    const { signal } = this.#reading;
    for (const key of this.#wanted.keys()) {
      const id = isRead(key)
        ? undefined
        : idsOf(this.store.jobs).find((each) => this.store.isOutgrown(key, each));
      if (id === undefined) continue;
      await this.#read([key], [id]);
      if (!signal.aborted) this.#readOutgrownSoon();
      return;
    }
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
    for (const some of this.#portions(keys)) void this.#read(some);
  }

  /** Returns the keys in portions whose curves fit into an answer. */
  #portions(keys: readonly string[]): readonly (readonly string[])[] {
    const jobs = this.store.jobs.length;
    const together = Math.min(jobs, JOBS_OF_AN_ANSWER);
    const most = Math.max(1, Math.floor(POINTS_OF_AN_ANSWER / (pointsOf(jobs) * together)));
    return Array.from({ length: Math.ceil(keys.length / most) }, (_, i) =>
      keys.slice(i * most, (i + 1) * most),
    );
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
      if (signal.aborted) return;
      this.#put(keys, series, smooth, only !== null);
      if (only !== null || !this.#hasOthers(jobs)) return;
      for (const key of keys) this.#stale.add(key);
      this.#loadSoon();
    } catch (error) {
      for (const key of keys) this.#stale.add(key);
      if (!signal.aborted) this.store.failed(error);
    } finally {
      if (!signal.aborted) for (const key of keys) this.#loading.delete(key);
    }
  }

  /** Whether jobs are shown that were not yet when curves were asked for. */
  #hasOthers(asked: readonly CurveJob[]): boolean {
    const ids = new Set(idsOf(asked));
    return idsOf(this.store.jobs).some((id) => !ids.has(id));
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
