/** What of a resolved spec differs from the defaults. */
import { secondsOf } from "../text/duration";
import { at, equal, isObject, type Json, type JsonObject } from "./json";
import type { Field } from "./schema";

const AFTER_STALL_S = 60;

/** Returns the spec without what is as it would be if it were left out. */
export function differences(root: Field, spec: JsonObject): JsonObject {
  const kept = reduced(root, spec);
  return { ...(spec.trainer === undefined ? {} : { trainer: spec.trainer }), ...kept };
}

function reduced(group: Field, values: JsonObject): JsonObject {
  return Object.fromEntries(
    Object.entries(values).flatMap(([name, value]): [string, Json][] => {
      const field = group.fields.find((each) => each.path.at(-1) === name);
      if (field === undefined) return name === "trainer" ? [] : [[name, value]];
      if (field.fallback !== undefined && equal(value, field.fallback)) return [];
      if (field.kind !== "group" || !isObject(value)) return [[name, value]];
      const inner = reduced(field, value);
      return Object.keys(inner).length === 0 && !field.isNullable ? [] : [[name, inner]];
    }),
  );
}

/** Returns a spec whose collectives time out as `auto` says again: a resolved one has the duration in its place. */
export function withAutoTimeout(spec: JsonObject): JsonObject {
  const stall = secondsOf(at(spec, ["stall_timeout"]));
  const config = at(spec, ["config"]);
  const distributed = at(spec, ["config", "distributed"]);
  if (stall === null || !isObject(config) || !isObject(distributed)) return spec;
  if (secondsOf(distributed.timeout) !== stall + AFTER_STALL_S) return spec;
  return { ...spec, config: { ...config, distributed: { ...distributed, timeout: "auto" } } };
}
