/** What the one live stream of the page tells its listeners. */
import type { EventView, JobSummary, LiveLine, LogLine } from "../api/wire";

export type Topic = "jobs" | "queue" | "workers";

/** Newly stored points of one series, in columns of one length. Values are numbers or "NaN", "Infinity", "-Infinity". */
export interface PointColumns {
  readonly step: readonly number[];
  readonly value: readonly (number | string)[];
  readonly time: readonly number[];
  readonly attempt: readonly number[];
}

/** All that a job has stored since the last one, in order. */
export interface Items {
  readonly job_id: string;
  readonly position: number;
  readonly metrics: Readonly<Record<string, PointColumns>>;
  readonly logs: readonly LogLine[];
  readonly events: readonly EventView[];
}

export type LiveEvent =
  | { readonly kind: "items"; readonly items: Items }
  /** The newest text of a line of output that has no end so far. Nothing stores it. */
  | { readonly kind: "line"; readonly line: LiveLine }
  | { readonly kind: "job"; readonly job: JobSummary }
  | { readonly kind: "deleted"; readonly jobId: string }
  /** The list of this topic has changed: read it again. */
  | { readonly kind: "changed"; readonly topic: Topic };

export interface Watch {
  /** Jobs by id, each with the position of the snapshot that was read before. */
  readonly jobs?: Readonly<Record<string, number>>;
  readonly topics?: readonly Topic[];
}

/** `live`: the stream works; `polling`: it does not, and lists are read every few seconds; `lost`: nothing answers. */
export type LiveStatus = "connecting" | "live" | "polling" | "lost";
