/** The steps of several keys under one slider. */
export interface Stepped {
  readonly steps: readonly number[];
}

/** Returns all steps, ascending, each once. */
export function allSteps(keys: readonly Stepped[]): readonly number[] {
  return [...new Set(keys.flatMap((key) => key.steps))].sort((a, b) => a - b);
}

/** Returns the place of the last of the ascending steps that is not above the wanted one; -1 where all are. */
export function placeOf(steps: readonly number[], wanted: number): number {
  let low = 0;
  let high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((steps[middle] ?? 0) <= wanted) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Returns the last of the ascending steps that is not above the wanted one, or null. */
export function atOrBelow(steps: readonly number[], wanted: number): number | null {
  return steps[placeOf(steps, wanted)] ?? null;
}

/** Returns the step `by` places away from the wanted one; the first or the last one where there are not so many. */
export function away(steps: readonly number[], wanted: number, by: number): number | null {
  return steps[Math.max(0, Math.min(placeOf(steps, wanted) + by, steps.length - 1))] ?? null;
}

/** Returns a step as people read it. */
export function stepText(step: number): string {
  return `step ${step.toLocaleString("en-US")}`;
}
