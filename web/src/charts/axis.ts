/** Where a point lies on the x axis: by step, epoch, trained time (pauses taken out) or wall clock. */
import type * as wire from "../api/curves";

export type XKind = "step" | "epoch" | "trained" | "wall";

export const X_KINDS: Readonly<Record<XKind, string>> = {
  step: "step",
  epoch: "epoch",
  trained: "training time",
  wall: "wall clock",
};

export type Attempt = Pick<wire.Attempt, "number" | "started_at" | "ended_at" | "start_step">;

/** A place where a later attempt went on. */
export interface Seam {
  readonly attempt: number;
  readonly x: number;
}

export class Place {
  readonly #offsets: ReadonlyMap<number, number>;
  readonly #newest: number;

  constructor(
    readonly kind: XKind,
    readonly attempts: readonly Attempt[],
    /** Steps of one epoch, or null where they are unknown. */
    readonly perEpoch: number | null = null,
    /** Time of the first point, for jobs whose attempts are unknown. */
    origin = 0,
  ) {
    this.#offsets = pausesBefore(attempts);
    this.#newest = [...this.#offsets.values()].at(-1) ?? origin;
  }

  /** Returns x. Times are seconds since the epoch; without known epochs x is NaN. */
  at(step: number, time: number, attempt: number): number {
    if (this.kind === "step") return step;
    if (this.kind === "wall") return time;
    if (this.kind === "epoch") return this.perEpoch === null ? NaN : step / this.perEpoch;
    return time - (this.#offsets.get(attempt) ?? this.#newest);
  }

  /** Returns where attempts went on from a checkpoint. Of attempts at one place the last counts. */
  seams(): readonly Seam[] {
    const found = new Map<number, Seam>();
    for (const { number, started_at, start_step } of this.attempts) {
      if (number <= 1 || start_step <= 0) continue;
      const x = this.at(start_step, seconds(started_at), number);
      if (Number.isFinite(x)) found.set(x, { attempt: number, x });
    }
    return [...found.values()];
  }
}

/** Returns what to take from each attempt's times, so that attempts follow one another from 0 without a pause. */
export function pausesBefore(attempts: readonly Attempt[]): Map<number, number> {
  const offsets = new Map<number, number>();
  let trained = 0;
  for (const attempt of attempts) {
    const started = seconds(attempt.started_at);
    offsets.set(attempt.number, started - trained);
    if (attempt.ended_at) trained += Math.max(0, seconds(attempt.ended_at) - started);
  }
  return offsets;
}

/** Returns the steps of an epoch from a job's progress, or null. */
export function stepsPerEpoch(progress: {
  readonly epochs?: number | null;
  readonly total_steps?: number | null;
}): number | null {
  const { epochs, total_steps: total } = progress;
  return epochs && total ? total / epochs : null;
}

function seconds(time: string): number {
  return Date.parse(time) / 1000;
}
