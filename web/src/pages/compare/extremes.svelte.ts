/** The least and the greatest value of each metric of the compared jobs: read once, and widened by what comes live. */
import { type ApiError, failureOf } from "../../api/client";
import { readCurves } from "../../api/curves";
import { NewestRequest } from "../../api/newest";
import type { Items } from "../../live/events";
import type { Extreme, ExtremesOf } from "./columns";

export class Extremes {
  /** By job and key; null while they are not read. */
  found = $state.raw<ReadonlyMap<string, ExtremesOf> | null>(null);
  failure = $state.raw<ApiError | null>(null);
  readonly #newest = new NewestRequest();

  /** Reads those of these jobs in place of others. */
  async read(ids: readonly string[]): Promise<void> {
    const signal = this.#newest.begin();
    try {
      const { jobs } = await readCurves({ job: ids }, signal);
      this.found = new Map(
        jobs.map(({ job_id, keys }) => [
          job_id,
          new Map(keys.flatMap(({ key, low, high }) => spanOf(key, low ?? null, high ?? null))),
        ]),
      );
      this.failure = null;
    } catch (error) {
      if (signal.aborted) return;
      this.failure = failureOf(error);
    }
  }

  /** Takes what a job has stored since. */
  heard(items: Items): void {
    const before = this.found?.get(items.job_id);
    if (!this.found || !before) return;
    const after = new Map(before);
    for (const [key, { value }] of Object.entries(items.metrics)) {
      const numbers = value.map(Number).filter(Number.isFinite);
      const { low, high } = before.get(key) ?? { low: Infinity, high: -Infinity };
      if (numbers.length > 0)
        after.set(key, { low: Math.min(low, ...numbers), high: Math.max(high, ...numbers) });
    }
    this.found = new Map(this.found).set(items.job_id, after);
  }

  close(): void {
    this.#newest.end();
  }
}

/** A metric without a finite value has none. */
function spanOf(key: string, low: number | null, high: number | null): readonly [string, Extreme][] {
  return low === null || high === null ? [] : [[key, { low, high }]];
}
