/** Reads finer rows of the part of the x axis that is shown. */
import { MOST_POINTS, readCurves } from "../api/curves";
import { NewestRequest } from "../api/newest";
import type { XKind } from "./axis";
import { Delays } from "./delays";
import { stepsWithin } from "./detail";
import { SMOOTH_POINTS } from "./smoothing";
import type { Span } from "./span";
import type { CurveStore } from "./store.svelte";

const SETTLED_MS = 150;

export class Zoom {
  #shown: { kind: XKind; span: Span } | null = null;
  readonly #newest = new NewestRequest();
  readonly #delays = new Delays();

  constructor(
    readonly store: CurveStore,
    /** Returns the keys whose charts can be seen. */
    readonly visible: () => readonly string[],
  ) {}

  /** Sets the part that is shown; null for all of the axis. */
  show(kind: XKind, span: Span | null): void {
    this.#shown = span && { kind, span };
    this.#newest.end();
    if (span) this.#delays.soon("read", SETTLED_MS, () => void this.#read());
    this.store.changed();
  }

  /** Reads again, if a part is shown: the curves were read anew. */
  again(): void {
    if (this.#shown) this.#delays.soon("read", 0, () => void this.#read());
  }

  /** Ends requests and timers. The part stays. */
  stop(): void {
    this.#delays.clear();
    this.#newest.end();
  }

  async #read(): Promise<void> {
    if (!this.#shown) return;
    const { kind, span } = this.#shown;
    const { store } = this;
    const signal = this.#newest.begin();
    const keys = this.visible().filter((key) => store.isCoarse(key));
    const steps = stepsWithin(store.lines(keys, kind), span);
    if (keys.length === 0 || !steps) return;
    const to_step = steps.to === Infinity ? null : steps.to;
    const query = {
      job: store.jobs.map((job) => job.id),
      key: keys,
      smooth: store.smooth,
      smooth_points: SMOOTH_POINTS,
    };
    try {
      const { series } = await readCurves(
        { ...query, max_points: MOST_POINTS, from_step: steps.from, to_step },
        signal,
      );
      if (!signal.aborted) store.putDetail(series, steps);
    } catch (error) {
      if (!signal.aborted) store.failed(error);
    }
  }
}
