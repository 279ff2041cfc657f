/** What a draft begins with: nothing but a trainer, or the spec of a job or a sweep. */
import { get } from "../../api/client";
import type { JobView, SweepView } from "../../api/wire";
import { differences, withAutoTimeout } from "../../specs/differences";
import { at, isObject, put, type Json, type JsonObject } from "../../specs/json";
import { fieldsOf, trainersOf, type Schema } from "../../specs/schema";
import { yaml } from "../../text/yaml";

export interface Origin {
  readonly text: string;
  /** The job or the sweep. */
  readonly name: string | null;
  readonly path: string;
}

/** The times of a new schedule, to be changed. */
const NIGHTLY = "0 3 * * *";

/** Two trials of an example whose data comes with the service, to be changed. */
const NEW_SWEEP: JsonObject = {
  name: "sweep",
  parameters: { "config.optimizer.lr": [0.1, 0.01] },
  job: { trainer: "image-classification", config: { data: { source: "digits" } } },
};

const OF_SWEEP: JsonObject = {
  method: "grid",
  seed: 0,
  max_failed: 10,
  trials: null,
  max_parallel: null,
  labels: {},
};

/** Returns the key under which the draft of an address is kept. */
export function originOf(query: URLSearchParams): string {
  const metric = query.get("metric");
  const from = query.get("from") ?? query.get("sweep") ?? (query.has("schedule") ? "schedule" : "");
  return from + (metric ? ` ${metric}` : "");
}

/** Reads what the address names. Throws ApiError. */
export async function readOrigin(schema: Schema, query: URLSearchParams): Promise<Origin> {
  const [from, sweep, metric] = [query.get("from"), query.get("sweep"), query.get("metric")];
  if (from) {
    const job = await get<JobView>(`v1/jobs/${encodeURIComponent(from)}`);
    const spec = job.spec as unknown as JsonObject;
    return {
      text: written(reduced(schema, metric ? withMetric(spec, metric) : spec)),
      name: job.name,
      path: `jobs/${job.id}`,
    };
  }
  if (sweep === "new") return { text: written(NEW_SWEEP), name: null, path: "" };
  if (sweep) {
    const found = await get<SweepView>(`v1/sweeps/${encodeURIComponent(sweep)}`);
    return {
      text: written(reducedSweep(schema, found.spec as unknown as JsonObject)),
      name: found.name,
      path: `sweeps/${found.id}`,
    };
  }
  const [first = "script"] = trainersOf(schema);
  const times: JsonObject = query.has("schedule") ? { schedule: NIGHTLY } : {};
  return { text: written({ trainer: first, ...times }), name: null, path: "" };
}

/** Returns a spec whose curves come from its log, by one more expression. */
function withMetric(spec: JsonObject, pattern: string): JsonObject {
  const before = at(spec, ["metrics", "patterns"]);
  return put(spec, ["metrics", "patterns"], [...(Array.isArray(before) ? before : []), pattern]);
}

function written(document: JsonObject): string {
  return `${yaml(document)}\n`;
}

function reduced(schema: Schema, spec: JsonObject): JsonObject {
  const root = fieldsOf(schema, spec.trainer);
  return root === null ? spec : differences(root, withAutoTimeout(spec));
}

function reducedSweep(schema: Schema, spec: JsonObject): JsonObject {
  const { job, ...others } = spec;
  const kept = Object.entries(others).filter(([key, value]) => value !== null && !isOfDefault(key, value));
  return { ...Object.fromEntries(kept), job: isObject(job) ? reduced(schema, job) : {} };
}

function isOfDefault(key: string, value: Json): boolean {
  if (isObject(value) && Object.keys(value).length === 0) return true;
  return OF_SWEEP[key] === value;
}
