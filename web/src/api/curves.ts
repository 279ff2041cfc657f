/** Curves of several jobs in columns. */
import { get } from "./client";
import type { components } from "./schema";

type Schemas = components["schemas"];

/** Rows of one series: points, or buckets of points whose step, time and attempt are those of their last point. */
export type CurveColumns = Schemas["CurveColumns"];
export type Curve = Schemas["CurveView"];
export type Curves = Schemas["CurvesView"];
export type Attempt = Schemas["AttemptView"];
export type WireNumber = CurveColumns["mean"][number];

/** The most points or buckets of a series in an answer that charts ask for. */
export const MOST_POINTS = 1500;

export interface CurveQuery {
  readonly job: readonly string[];
  readonly key?: readonly string[];
  readonly smooth?: number;
  readonly smooth_points?: number;
  readonly max_points?: number;
  readonly from_step?: number | null;
  readonly to_step?: number | null;
  readonly hidden?: boolean;
}

/** Reads curves; without keys only which there are. Throws ApiError. */
export function readCurves(query: CurveQuery, signal: AbortSignal | null = null): Promise<Curves> {
  return get<Curves>("v1/metrics", { ...query }, signal);
}
