/** How the devices of a job were used, as curves beside its metrics: on time, up to now, however far the metrics reach. */
import { failureOf, get } from "../api/client";
import type { AttemptView, HistoryView, Page, WorkerView } from "../api/wire";
import type { XKind } from "./axis";
import { Columns } from "./columns";
import { Line } from "./line";
import { DEVICES, type Section } from "./panels";
import type { Span } from "./span";
import type { Curves, CurveStore } from "./store.svelte";

/** Whose devices to read: the attempts of a job. */
export interface DeviceUse {
  readonly attempts: readonly Pick<
    AttemptView,
    "number" | "worker" | "started_at" | "ended_at" | "devices"
  >[];
  /** Whether there is more to come. */
  readonly isOpen: boolean;
}

/** The devices of one slot of time, of one attempt. */
interface Sample {
  readonly time: number;
  readonly attempt: number;
  readonly values: Map<string, number[]>;
}

type History = HistoryView["devices"][number];

const MOST_SLOTS = 1000;
const AGAIN_MS = 15_000;
const GIB = 2 ** 30;
const CHARTS = {
  [`${DEVICES}/gpu`]: "GPU use, %",
  [`${DEVICES}/cpu`]: "CPU use, %",
  [`${DEVICES}/memory`]: "GPU memory, GiB",
  [`${DEVICES}/power`]: "GPU power, W",
};

export class DeviceCurves implements Curves {
  #samples: readonly Sample[] = [];
  /** The curves of each key, with the steps that the series of the job had come to. */
  #made = new Map<string, Columns>();
  #clock: Columns | null = null;
  #wanted = 0;
  /** How many were reported. */
  #charts = 0;
  #timer: ReturnType<typeof setInterval> | undefined;
  readonly #closed = new AbortController();
  readonly #listeners = new Set<() => void>();

  constructor(
    readonly store: CurveStore,
    readonly use: DeviceUse,
    /** Gets which charts there are, once there is one, and whenever there are more. */
    readonly changed: (section: Section) => void,
  ) {}

  /** Reads the samples now, and again while the job is open: always until there is a chart, then while a chart is in sight. */
  async open(): Promise<void> {
    await this.#read();
    if (this.use.isOpen && !this.#closed.signal.aborted)
      this.#timer = setInterval(() => {
        if ((this.#wanted > 0 || this.#charts === 0) && !document.hidden) void this.#read();
      }, AGAIN_MS);
  }

  close(): void {
    this.#closed.abort();
    clearInterval(this.#timer);
  }

  /** Says that a chart can be seen. Returns how to take it back. */
  want(): () => void {
    this.#wanted += 1;
    return () => void (this.#wanted -= 1);
  }

  isLoaded(key: string): boolean {
    return this.#samples.some(({ values }) => values.has(key));
  }

  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    const stop = this.store.listen(listener);
    return () => {
      this.#listeners.delete(listener);
      stop();
    };
  }

  lines(keys: readonly string[], kind: XKind): readonly Line[] {
    const [job] = this.store.jobs;
    if (!job) return [];
    return keys.map((key) => {
      const columns = this.#columns(key);
      const place = this.store.attempts.place(job.id, kind, columns.time[0] ?? 0);
      return new Line({
        ...{ jobId: job.id, job: job.name, name: job.name, key, part: null },
        ...{ colour: this.store.colour(job.id), columns, place },
      });
    });
  }

  /** Returns the time of the attempts, up to now while the job is open. */
  range(kind: XKind): Span {
    const [job] = this.store.jobs;
    const { attempts, isOpen } = this.use;
    const [first, last] = [attempts[0], attempts.at(-1)];
    if (!job || !first || !last) return { min: 0, max: 1 };
    const from = Date.parse(first.started_at) / 1000;
    const ended = isOpen || !last.ended_at ? Date.now() : Date.parse(last.ended_at);
    const place = this.store.attempts.place(job.id, kind, from);
    const min = place.at(0, from, first.number);
    return { min, max: Math.max(min + 1, place.at(0, ended / 1000, last.number)) };
  }

  #columns(key: string): Columns {
    const clock = this.store.longest();
    if (clock !== this.#clock) this.#made.clear();
    this.#clock = clock;
    const found = this.#made.get(key) ?? columnsOf(this.#samples, key, clock);
    this.#made.set(key, found);
    return found;
  }

  async #read(): Promise<void> {
    const { signal } = this.#closed;
    try {
      const { data } = await get<Page<WorkerView>>("v1/workers", { limit: 200 }, signal);
      const names = new Set(this.use.attempts.map(({ worker }) => worker));
      const found: Sample[] = [];
      for (const { id, name } of data.filter((worker) => names.has(worker.name))) {
        const attempts = this.use.attempts.filter(({ worker }) => worker === name);
        const query = {
          from: attempts[0]?.started_at,
          to: attempts.at(-1)?.ended_at,
          max_points: MOST_SLOTS,
        };
        const history = await get<HistoryView>(`v1/workers/${id}/history`, query, signal);
        found.push(...samplesOf(history.devices, attempts));
      }
      this.#samples = found.sort((a, b) => a.time - b.time);
      this.#made.clear();
      this.#tell();
      for (const listener of this.#listeners) listener();
    } catch (error) {
      if (!signal.aborted) failureOf(error); // the page can do without
    }
  }

  #tell(): void {
    const keys = Object.entries(CHARTS).filter(([key]) => this.isLoaded(key));
    if (keys.length === this.#charts) return;
    this.#charts = keys.length;
    const panels = keys.map(([key, name]) => ({
      ...{ id: key, prefix: "", name, keys: [key], canSplit: false, isMonitored: false },
    }));
    this.changed({ id: DEVICES, title: "devices", panels });
  }
}

/** Returns the use, memory and power of each attempt's devices, from its start to its end. */
function samplesOf(devices: readonly History[], attempts: DeviceUse["attempts"]): readonly Sample[] {
  const found = new Map<string, Sample>();
  for (const { number, started_at, ended_at, devices: held } of attempts) {
    const from = Date.parse(started_at) / 1000;
    const to = ended_at ? Date.parse(ended_at) / 1000 : Infinity;
    for (const { uuid, kind, columns } of devices) {
      if (!held.some((device) => device.uuid === uuid)) continue;
      for (const [i, time] of columns.time.entries()) {
        if (time < from || time > to) continue;
        const sample = found.get(`${number} ${time}`) ?? { time, attempt: number, values: new Map() };
        found.set(`${number} ${time}`, sample);
        add(sample, `${DEVICES}/${kind === "cuda" ? "gpu" : "cpu"}`, columns.utilization[i], 100);
        add(sample, `${DEVICES}/memory`, columns.memory_used[i], 1 / GIB);
        add(sample, `${DEVICES}/power`, columns.power_watts[i], 1);
      }
    }
  }
  return [...found.values()];
}

function add({ values }: Sample, key: string, value: number | null | undefined, times: number): void {
  if (value === null || value === undefined) return;
  const known = values.get(key);
  if (known) known.push(value * times);
  else values.set(key, [value * times]);
}

/** Returns the mean, least and greatest value of the devices. */
function columnsOf(samples: readonly Sample[], key: string, clock: Columns | null): Columns {
  const rows = samples.flatMap(({ time, attempt, values }) => {
    const all = values.get(key);
    return all ? [{ time, attempt, step: clock ? stepAt(clock, time) : 0, all }] : [];
  });
  const columns = {
    step: rows.map(({ step }) => step),
    time: rows.map(({ time }) => time),
    attempt: rows.map(({ attempt }) => attempt),
    mean: rows.map(({ all }) => all.reduce((sum, value) => sum + value, 0) / all.length),
    min: rows.map(({ all }) => Math.min(...all)),
    max: rows.map(({ all }) => Math.max(...all)),
    ema: null,
    nonfinite: null,
  };
  return Columns.of({ points: rows.length, columns }, 0);
}

/** Returns the step of the newest point until then; 0 before the first. */
function stepAt(clock: Columns, time: number): number {
  const after = clock.firstAtOrAfter(time, (row) => clock.time[row] ?? 0);
  return clock.step[clock.time[after] === time && after < clock.length ? after : after - 1] ?? 0;
}
