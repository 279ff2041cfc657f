/** Finds the field of the form for each error of a draft. */
import { isObject, type Json } from "../../specs/json";
import type { Field } from "../../specs/schema";
import { MISSING, wrong } from "../../specs/values";
import type { Wrong } from "./checks.svelte";

/** What a draft has of each field. */
export interface Held {
  readonly given: (field: Field) => Json | undefined;
  readonly varied: (field: Field) => Json | undefined;
}

/** Returns what can be said at once of the values that a draft has, by the keys of their fields. */
export function saidAtOnce(root: Field, draft: Held): Map<string, string> {
  const found = new Map<string, string>();
  const look = (group: Field): void => {
    for (const field of group.fields) {
      if (field.kind === "group") {
        if (!field.isNullable || isObject(draft.given(field))) look(field);
        continue;
      }
      const message = draft.varied(field) === undefined ? wrong(field, draft.given(field)) : null;
      if (message !== null) found.set(field.key, message);
    }
  };
  look(root);
  return found;
}

/** Returns the key of the form's field for what the service calls a field of the document. */
export function keyOfWrong(
  { field, message }: Wrong,
  keys: readonly string[],
  { isSweep }: { isSweep: boolean },
): string {
  const named = field === "" ? (message.split(" ")[0] ?? "") : field; // of a whole sweep, it may begin with a key
  const own = isSweep ? ownOf(named) : named;
  if (keys.includes(own)) return own;
  // An entry of a list or a map, or a value of a sweep.
  const around = keys
    .filter((key) => own.startsWith(`${key}.`))
    .sort((one, other) => other.length - one.length);
  return around[0] ?? (field === "" ? "" : own);
}

/** Returns all errors by field: the service's, and before it has answered what can be said at once. */
export function byField(
  said: ReadonlyMap<string, string>,
  ofService: readonly Wrong[],
  keys: readonly string[],
  kind: { isSweep: boolean },
): ReadonlyMap<string, string> {
  const found = new Map(said);
  for (const each of ofService) {
    const key = keyOfWrong(each, keys, kind);
    // A group is missing where a field in it is.
    if ([...said.keys()].some((inner) => inner.startsWith(`${key}.`))) continue;
    const isNamed = each.field === "" && key !== "";
    found.set(key, isNamed ? each.message.slice(each.message.indexOf(" ") + 1) : each.message);
  }
  return found;
}

/** Returns what is shown as wrong: that a value is missing only where one has left the field without it. */
export function shownAsWrong(
  wrong: ReadonlyMap<string, string>,
  left: ReadonlySet<string>,
): ReadonlyMap<string, string> {
  return new Map([...wrong].filter(([key, message]) => message !== MISSING || left.has(key)));
}

function ownOf(field: string): string {
  const inner = field.replace(/^(job|parameters)\./, "");
  return inner === field ? `sweep.${field}` : inner;
}
