/** The best value of a sweep so far, over its trials. */
import type { TrialView } from "../api/wire";
import type { Better } from "./direction";

export interface TrialPoint {
  readonly id: string;
  readonly number: number;
  readonly value: number;
  /** Whether no trial before it was as good. */
  readonly isBest: boolean;
}

/** Returns the trials that have a value, by their number. */
export function trialPoints(trials: readonly TrialView[], mode: Better): readonly TrialPoint[] {
  let best: number | null = null;
  return [...trials]
    .sort((a, b) => a.number - b.number)
    .flatMap(({ job_id: id, number, value }): readonly TrialPoint[] => {
      const found = value === null ? NaN : Number(value);
      if (!id || !Number.isFinite(found)) return [];
      const isBest = best === null || (mode === "min" ? found < best : found > best);
      if (isBest) best = found;
      return [{ id, number, value: found, isBest }];
    });
}
