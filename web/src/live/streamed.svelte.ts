/** The newest row of each job that the stream has sent, for lists whose answers may be older. */
import type { JobSummary } from "../api/wire";
import { newest } from "./reported";

export class StreamedRows {
  private rows = $state.raw<ReadonlyMap<string, JobSummary>>(new Map());

  /** How many are held. */
  get size(): number {
    return this.rows.size;
  }

  take(job: JobSummary): void {
    this.rows = new Map(this.rows).set(job.id, job);
  }

  /** Returns the row as it is known best. Values of columns are those of the list: the stream has none. */
  known(row: JobSummary): JobSummary {
    const best = newest(this.rows.get(row.id), row);
    return best === row || !row.columns ? best : { ...best, columns: row.columns };
  }

  /** Lets go of all but these: rows of the jobs that are not listed would add up for as long as the page is open. */
  keep(listed: readonly JobSummary[]): void {
    const ids = new Set(listed.map(({ id }) => id));
    this.rows = new Map([...this.rows].filter(([id]) => ids.has(id)));
  }
}
