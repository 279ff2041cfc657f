/** Curves as the service answers them. */
import type { Curve, Curves } from "../api/curves";
import type { Items } from "../live/events";

/** Returns a curve of `key` with a row for each value, at steps that begin with `first`. Its rows stand for `points`. */
export function curve(
  key: string,
  values: readonly number[],
  {
    job = "job_a",
    first = 1,
    points = values.length,
    hidden = false,
  }: { job?: string; first?: number; points?: number; hidden?: boolean } = {},
): Curve {
  const step = values.map((_, i) => first + i);
  const columns = { step, time: step, attempt: step.map(() => 1), mean: [...values] };
  return { job_id: job, key, points, hidden, columns } as unknown as Curve;
}

/** Returns which keys jobs have. */
export function keys(all: Readonly<Record<string, readonly string[]>>): Curves["jobs"] {
  return Object.entries(all).map(([job_id, found]) => ({
    job_id,
    position: 1,
    keys: found.map((key) => ({ key })),
  })) as unknown as Curves["jobs"];
}

/** Returns one point that came live. */
export function point(key: string, step: number, value: number, attempt = 1, job = "job_a"): Items {
  const metrics = { [key]: { step: [step], value: [value], time: [step], attempt: [attempt] } };
  return { job_id: job, position: step, metrics, logs: [], events: [] };
}
