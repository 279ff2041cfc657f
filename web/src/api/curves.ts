/** Curves of several jobs in columns, and the attempts of a job. */
import { get } from "./client";
import type { components } from "./schema";

type Schemas = components["schemas"];

/** Rows of one series: points, or buckets of points whose step, time and attempt are those of their last point. */
export type CurveColumns = Schemas["CurveColumns"];
export type Curve = Schemas["CurveView"];
export type Curves = Schemas["CurvesView"];
export type Attempt = Schemas["AttemptView"];
export type WireNumber = CurveColumns["mean"][number];

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

/** Reads a job's attempts, oldest first. Throws ApiError. */
export async function readAttempts(
  jobId: string,
  signal: AbortSignal | null = null,
): Promise<readonly Attempt[]> {
  return (await get<{ data: readonly Attempt[] }>(`v1/jobs/${jobId}/attempts`, {}, signal)).data;
}
