/** What a key of a sweep varies over, as people type it: that of `torchyard submit --sweep KEY=VALUES`. */
import { isObject, type Json } from "./json";
import type { Field } from "./schema";
import { shown, typed } from "./values";

const SPAN = /^(.+?)\.\.(.+?)(?::(log|step=(.+)))?$/;
const WHOLE = /^-?\d{1,15}$/;

/** Returns the values of `0.1, 0.01`, `1..5`, `1e-4..1e-1:log` or `0..0.5:step=0.1`. */
export function variedBy(field: Field, text: string): Json {
  const span = field.kind === "number" ? SPAN.exec(text.trim()) : null;
  if (span === null) return list(field, text);
  const [, least = "", most = "", rule, step] = span;
  if (rule === undefined && WHOLE.test(least) && WHOLE.test(most)) return `${least}..${most}`;
  const [min, max] = [Number(least), Number(most)];
  if (Number.isNaN(min) || Number.isNaN(max)) return list(field, text);
  return {
    min,
    max,
    ...(rule === "log" ? { log: true } : {}),
    ...(step === undefined ? {} : { step: Number(step) }),
    ...(field.limits.type === "integer" ? { integer: true } : {}),
  };
}

/** Returns values as they are typed. */
export function variedText(field: Field, values: Json): string {
  if (typeof values === "string") return values;
  if (Array.isArray(values)) return values.map((value: Json) => shown(field, value)).join(", ");
  if (!isObject(values)) return String(values);
  const rule = values.log === true ? ":log" : typeof values.step === "number" ? `:step=${values.step}` : "";
  return `${String(values.min)}..${String(values.max)}${rule}`;
}

function list(field: Field, text: string): Json {
  const parts = text.split(",").map((part) => part.trim());
  return parts
    .filter((part) => part !== "")
    .map((part) => choiceOf(field, part) ?? typed(field, part) ?? part);
}

function choiceOf(field: Field, text: string): Json | undefined {
  return field.choices.find((choice) => String(choice) === text);
}
