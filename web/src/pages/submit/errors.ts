/** Finds the field of the form for each error of a draft. */
import { isObject, type Json, type Path } from "../../specs/json";
import type { Field } from "../../specs/schema";
import { wrong } from "../../specs/values";
import type { Wrong } from "./checks.svelte";

/** Returns what can be said at once of the values that are given, by the keys of their fields. */
export function saidAtOnce(
  root: Field,
  given: (path: Path) => Json | undefined,
  isVaried: (field: Field) => boolean,
): Map<string, string> {
  const found = new Map<string, string>();
  const look = (group: Field): void => {
    for (const field of group.fields) {
      if (field.kind === "group") {
        if (!field.isNullable || isObject(given(field.path))) look(field);
        continue;
      }
      const message = isVaried(field) ? null : wrong(field, given(field.path));
      if (message !== null) found.set(field.key, message);
    }
  };
  look(root);
  return found;
}

/** Returns the key of the form's field for what the service calls a field of the document. */
export function keyOfWrong(
  field: string,
  keys: readonly string[],
  { isSweep }: { isSweep: boolean },
): string {
  const own = isSweep ? field.replace(/^(job|parameters)\./, "") : field;
  if (keys.includes(own)) return own;
  // An entry of a list or a map, or a value of a sweep.
  return (
    keys.filter((key) => own.startsWith(`${key}.`)).sort((one, other) => other.length - one.length)[0] ?? own
  );
}

/** Returns all errors by field: the service's, and before it has answered what can be said at once. */
export function byField(
  said: ReadonlyMap<string, string>,
  ofService: readonly Wrong[],
  keys: readonly string[],
  kind: { isSweep: boolean },
): ReadonlyMap<string, string> {
  const found = new Map(said);
  for (const each of ofService) found.set(keyOfWrong(each.field, keys, kind), each.message);
  return found;
}
