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

/** The most jobs that the service answers at once. */
export const JOBS_OF_AN_ANSWER = 50;

/** Reads curves, of many jobs in several requests; without keys only which there are. Throws ApiError. */
export async function readCurves(query: CurveQuery, signal: AbortSignal | null = null): Promise<Curves> {
  const parts: Promise<Curves>[] = [];
  for (let from = 0; from < query.job.length; from += JOBS_OF_AN_ANSWER) {
    const job = query.job.slice(from, from + JOBS_OF_AN_ANSWER);
    parts.push(get<Curves>("v1/metrics", { ...query, job }, signal));
  }
  const answers = await Promise.all(parts);
  return {
    jobs: answers.flatMap(({ jobs }) => jobs),
    series: answers.flatMap(({ series }) => series),
    max_points: Math.min(...answers.map(({ max_points: most }) => most)),
  };
}
