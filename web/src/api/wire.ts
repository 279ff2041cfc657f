/** The service's JSON, under the names that the pages use. Generated from its OpenAPI document. */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type JobState = Schemas["JobState"];
export type JobSummary = Schemas["JobSummary"] & NewOfSummary;
export type JobView = Schemas["JobView"] & NewOfSummary;
export type EventView = Schemas["EventView"];
export type LogLine = Schemas["LogLine"];
export type CheckpointView = Schemas["CheckpointView"];
export type WorkerView = Schemas["WorkerView"];
export type DeviceView = Schemas["DeviceView"];
export type QueueEntry = Schemas["QueueEntry"];
export type MeView = Schemas["MeView"];
export type Problem = Schemas["Problem"];

export interface Page<T> {
  readonly data: readonly T[];
  readonly has_more: boolean;
  readonly next: string | null;
}

// By hand until the document has them: all below this line.

interface NewOfSummary {
  readonly trainer: string;
  /** The job's place in its timeline: a stream `after` it has no gap and no repeat. */
  readonly position: number;
}

/** A page of jobs; with `counts=true` how many the same filter finds in each state. */
export interface JobsPage extends Page<JobSummary> {
  readonly counts?: Readonly<Partial<Record<JobState, number>>> | null;
  readonly total?: number | null;
}

export type Action = "cancel" | "pause" | "resume" | "delete";

export interface ActionsView {
  readonly matched: number;
  readonly done: number;
  readonly refused: readonly { readonly job_id: string; readonly code: string; readonly message: string }[];
  readonly more: boolean;
}

/** A value of a column: what is not finite is a word, what is not there is null. */
export type Cell = number | "NaN" | "Infinity" | "-Infinity" | null;

export interface SeriesColumns {
  readonly step: readonly number[];
  readonly time: readonly number[];
  readonly attempt: readonly number[];
  readonly mean: readonly Cell[];
  readonly min: readonly Cell[] | null;
  readonly max: readonly Cell[] | null;
  readonly ema: readonly Cell[] | null;
  readonly nonfinite: readonly number[] | null;
}

export interface MetricSeries {
  readonly job_id: string;
  readonly key: string;
  readonly source: string;
  readonly points: number;
  readonly hidden?: boolean;
  readonly columns: SeriesColumns;
}

export interface MetricsAnswer {
  readonly jobs: readonly {
    readonly job_id: string;
    readonly position: number;
    readonly keys: readonly {
      readonly key: string;
      readonly count: number;
      readonly source: string;
      readonly latest: Cell;
    }[];
  }[];
  readonly series: readonly MetricSeries[];
  readonly max_points: number;
}

export interface DeviceHistory {
  readonly uuid: string;
  readonly index: number;
  readonly name: string;
  readonly columns: {
    readonly time: readonly number[];
    readonly utilization: readonly (number | null)[];
    readonly utilization_max: readonly (number | null)[];
    readonly memory_used: readonly (number | null)[];
    readonly job_id?: readonly (string | null)[];
  };
}

export interface HistoryView {
  readonly worker_id: string;
  readonly resolution_seconds: number;
  readonly devices: readonly DeviceHistory[];
}
