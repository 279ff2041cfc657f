/** Values of fields as people type them, and what is wrong with them before the service says it. */
import { flow } from "../text/yaml";
import type { Json } from "./json";
import type { Field, Schema } from "./schema";

const NUMBER = /^[-+]?(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?$/i;

/** Returns the value of what was typed; undefined for the default. What is no number stays a text, and is refused as such. */
export function typed(field: Field, text: string): Json | undefined {
  const trimmed = text.trim();
  if (trimmed === "") return undefined;
  if (field.isNullable && trimmed === "null") return null;
  if (field.kind !== "number" && field.kind !== "lines") return text;
  const word = field.choices.find((choice) => String(choice) === trimmed);
  if (word !== undefined) return word;
  if (field.kind === "lines") return text.split("\n").filter((line) => line !== "");
  return NUMBER.test(trimmed) ? Number(trimmed) : trimmed;
}

/** Returns a value as it is typed. */
export function shown(field: Field, value: Json | undefined): string {
  if (value === undefined) return "";
  if (typeof value === "string") return value;
  if (field.kind === "lines" && Array.isArray(value)) return value.map(String).join("\n");
  return flow(value);
}

/** What is wrong with a field that has no value and needs one, in the words of the service, too. */
export const MISSING = "is missing";

/** Says what is wrong with a value; null where only the service knows. */
export function wrong(field: Field, value: Json | undefined): string | null {
  if (value === undefined) return field.isRequired && field.fallback === undefined ? MISSING : null;
  if (value === null && field.isNullable) return null;
  if (field.kind === "choice")
    return field.choices.includes(value) ? null : `must be one of ${field.choices.map(String).join(", ")}`;
  if (field.kind === "number") return field.choices.includes(value) ? null : outside(value, field.limits);
  return null;
}

/** Says whether a value can be one of the field, as far as the page knows. */
export function fits(field: Field, value: Json): boolean {
  if (wrong(field, value) !== null) return false;
  if (typeof value !== "string" || field.limits.pattern === undefined) return true;
  return new RegExp(field.limits.pattern, "u").test(value);
}

function outside(value: Json, limits: Schema): string | null {
  if (typeof value !== "number") return "must be a number";
  if (limits.type === "integer" && !Number.isInteger(value)) return "must be a whole number";
  const { minimum, maximum, exclusiveMinimum: above, exclusiveMaximum: below } = limits;
  if (minimum !== undefined && value < minimum) return `must be at least ${minimum}`;
  if (maximum !== undefined && value > maximum) return `must be at most ${maximum}`;
  if (above !== undefined && value <= above) return `must be above ${above}`;
  if (below !== undefined && value >= below) return `must be below ${below}`;
  return null;
}
