/** What the job's page reads besides the job. */
import type { JobView } from "../../api/wire";

export type HeldDevice = JobView["devices"][number];

export interface AttemptView {
  readonly number: number;
  readonly worker: string;
  readonly started_at: string;
  readonly ended_at: string | null;
  readonly end_reason: string | null;
  readonly detail: string | null;
  readonly start_step: number;
  readonly devices: readonly HeldDevice[];
}

export interface AdviceView {
  readonly headline: string;
  readonly cause: string | null;
  readonly evidence: readonly Evidence[];
  readonly steps: readonly string[];
  readonly severity: "info" | "warning" | "error";
}

export interface Evidence {
  readonly kind: "log" | "rank" | "memory" | "event" | "metric" | "utilization";
  readonly text: string;
  readonly line: number | null;
  readonly rank: number | null;
}
