/** What one submits: a job spec, one with a schedule, or a sweep, which has a job spec below its key `job`. */
import { at, equal, isObject, put, type Json, type JsonObject, type Path } from "./json";
import { fieldAt, type Field } from "./schema";
import type { Sent } from "./snippets";
import { fits } from "./values";

export function kindOf(document: JsonObject): Sent {
  if (isSweep(document)) return "sweep";
  return document.schedule === undefined || document.schedule === null ? "job" : "schedule";
}

export function isSweep(document: JsonObject): boolean {
  return isObject(document.job) && document.trainer === undefined;
}

/** Returns the job spec in the document. */
export function jobOf(document: JsonObject): JsonObject {
  return isSweep(document) && isObject(document.job) ? document.job : document;
}

/** Returns where a place of the job spec is in the document. */
export function placeOf(document: JsonObject, path: Path): Path {
  return isSweep(document) ? ["job", ...path] : path;
}

/** Returns the document with another value in its job spec. Groups that become empty are removed. */
export function withValue(
  document: JsonObject,
  root: Field,
  path: Path,
  value: Json | undefined,
): JsonObject {
  const changed = put(document, placeOf(document, path), value);
  if (value !== undefined || path.length < 2) return changed;
  const group = path.slice(0, -1);
  const left = at(jobOf(changed), group);
  if (!isObject(left) || Object.keys(left).length > 0 || fieldAt(root, group).isNullable) return changed;
  return withValue(changed, root, group, undefined);
}

/** Values of configurations, of which a trainer takes those that fit it. */
export interface Values {
  /** Of all trainers so far, the newest. */
  readonly all: JsonObject;
  /** Of the trainer itself: what it had where the next one has another. */
  readonly own: JsonObject;
}

/** Returns the document of another trainer, with the values that it takes. */
export function withTrainer(document: JsonObject, root: Field, trainer: string, values: Values): JsonObject {
  const config = merged(fitting(fieldAt(root, ["config"]), values.all), values.own);
  const others = put(jobOf(document), ["config"], undefined);
  const made = { ...others, trainer, ...(Object.keys(config).length > 0 ? { config } : {}) };
  return isSweep(document) ? { ...document, job: made } : made;
}

/** Returns the values that another object does not have. */
export function lost(before: JsonObject, after: JsonObject): JsonObject {
  return Object.entries(before).reduce<JsonObject>((made, [name, value]) => {
    const other = at(after, [name]);
    if (equal(value, other)) return made;
    return put(made, [name], isObject(value) && isObject(other) ? lost(value, other) : value);
  }, {});
}

/** Returns the values for which a group has fields that do not take them. */
export function unfit(group: Field, values: JsonObject): JsonObject {
  return Object.entries(values).reduce<JsonObject>((made, [name, value]) => {
    const field = group.fields.find((each) => each.path.at(-1) === name);
    if (field === undefined) return made;
    if (field.kind !== "group" || !isObject(value))
      return fits(field, value) ? made : put(made, [name], value);
    const inner = unfit(field, value);
    return Object.keys(inner).length > 0 ? put(made, [name], inner) : made;
  }, {});
}

/** Returns what a key varies over; undefined if it does not vary. */
export function variedIn(document: JsonObject, key: string): Json | undefined {
  return isSweep(document) ? at(document, ["parameters", key]) : undefined;
}

/** Returns the document in which a key varies over other values; without any it does not vary. */
export function withVaried(document: JsonObject, key: string, values: Json | undefined): JsonObject {
  const sweep = isSweep(document) ? document : sweepOf(document);
  const changed = put(sweep, ["parameters", key], values);
  const left = at(changed, ["parameters"]);
  if (!isObject(left) || Object.keys(left).length > 0) return changed;
  const { trainer = "", ...others } = jobOf(changed);
  return { trainer, ...(typeof changed.name === "string" ? { name: changed.name } : {}), ...others };
}

/** Returns the document with another method, and what that method needs. */
export function withMethod(document: JsonObject, method: string): JsonObject {
  const { trials, halving, points, parameters, ...rest } = document;
  const epochs = at(jobOf(document), ["config", "training", "epochs"]);
  const most = typeof epochs === "number" && epochs > 1 ? epochs : 3;
  const isCounted = method !== "grid" && method !== "list";
  const isOfKeys = method !== "list" && method !== "array";
  return {
    ...put(rest, ["method"], method === "grid" ? undefined : method),
    ...(isCounted ? { trials: trials ?? 10 } : {}),
    ...(method === "asha" ? { halving: halving ?? { min: 1, max: most } } : {}),
    ...(method === "list" ? { points: points ?? [firstOf(parameters)] } : {}),
    ...(isOfKeys ? { parameters: parameters ?? variedOf(points) } : {}),
  };
}

/** Returns the point that has the first value of each key. */
function firstOf(parameters: Json | undefined): JsonObject {
  const entries = Object.entries(isObject(parameters) ? parameters : {});
  return Object.fromEntries(
    entries.map(([key, values]): [string, Json] => [
      key,
      (Array.isArray(values) ? (values as Json[])[0] : null) ?? null,
    ]),
  );
}

/** Returns each key of the points with its values. */
function variedOf(points: Json | undefined): JsonObject {
  const all = Array.isArray(points) ? (points as Json[]).filter(isObject) : [];
  const keys = [...new Set(all.flatMap((point) => Object.keys(point)))];
  return Object.fromEntries(keys.map((key) => [key, [...new Set(all.map((point) => point[key] ?? null))]]));
}

/** Says whether an environment variable has its value in the document, which may be a secret. */
export function hasPlainValues(document: JsonObject): boolean {
  const env = jobOf(document).env;
  return isObject(env) && Object.values(env).some((value) => typeof value === "string" && value !== "");
}

function sweepOf(job: JsonObject): JsonObject {
  const others = put(put(job, ["name"], undefined), ["schedule"], undefined);
  return { name: job.name ?? job.trainer ?? "sweep", parameters: {}, job: others };
}

/** Returns the values that the fields of a group take. */
export function fitting(group: Field, values: JsonObject): JsonObject {
  return Object.entries(values).reduce<JsonObject>((made, [name, value]) => {
    const field = group.fields.find((each) => each.path.at(-1) === name);
    if (field === undefined) return made;
    if (field.kind !== "group" || !isObject(value))
      return fits(field, value) ? put(made, [name], value) : made;
    const inner = fitting(field, value);
    return Object.keys(inner).length > 0 || field.isNullable ? put(made, [name], inner) : made;
  }, {});
}

/** Returns both with their objects joined; of two values the second. */
export function merged(one: JsonObject, other: JsonObject): JsonObject {
  return Object.entries(other).reduce((made, [name, value]) => {
    const inner = at(made, [name]);
    return put(made, [name], isObject(inner) && isObject(value) ? merged(inner, value) : value);
  }, one);
}
