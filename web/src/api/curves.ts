/** Curves of several jobs in columns. Written by hand until the generated types have /v1/metrics. */
import { get } from "./client";

export type WireNumber = number | "NaN" | "Infinity" | "-Infinity" | null;

/** Rows of one series: points, or buckets of points whose step, time and attempt are those of their last point. */
export interface CurveColumns {
  readonly step: readonly number[];
  readonly time: readonly number[];
  readonly attempt: readonly number[];
  readonly mean: readonly WireNumber[];
  readonly min: readonly WireNumber[] | null;
  readonly max: readonly WireNumber[] | null;
  readonly ema: readonly WireNumber[] | null;
  readonly nonfinite: readonly number[] | null;
}

export interface Curve {
  readonly job_id: string;
  readonly key: string;
  /** Visible points in the range that was asked for. */
  readonly points: number;
  readonly hidden?: boolean;
  readonly columns: CurveColumns;
}

export interface CurveKey {
  readonly key: string;
  readonly count: number;
}

export interface Curves {
  readonly jobs: readonly {
    readonly job_id: string;
    readonly position: number;
    readonly keys: readonly CurveKey[];
  }[];
  readonly series: readonly Curve[];
}

export interface CurveQuery {
  readonly job: readonly string[];
  readonly key?: readonly string[];
  readonly smooth?: number;
  readonly max_points?: number;
  readonly from_step?: number | null;
  readonly to_step?: number | null;
  readonly hidden?: boolean;
}

/** Reads curves; without keys only which there are. Throws ApiError. */
export function readCurves(query: CurveQuery, signal: AbortSignal | null = null): Promise<Curves> {
  return get<Curves>("v1/metrics", { ...query }, signal);
}

/** One run of a job. Times are RFC 3339. */
export interface Attempt {
  readonly number: number;
  readonly started_at: string;
  readonly ended_at: string | null;
  readonly start_step: number;
}

/** Reads a job's attempts, oldest first. Throws ApiError. */
export async function readAttempts(
  jobId: string,
  signal: AbortSignal | null = null,
): Promise<readonly Attempt[]> {
  return (await get<{ data: readonly Attempt[] }>(`v1/jobs/${jobId}/attempts`, {}, signal)).data;
}
