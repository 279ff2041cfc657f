/** Which jobs an address finds: one table of the conditions, whose keys are those of the service's lists, too. */
import type { JobState } from "../api/wire";

export const STATES: readonly JobState[] = [
  "running",
  "starting",
  "queued",
  "paused",
  "failed",
  "succeeded",
  "cancelled",
];

interface Kind {
  /** Says it in words, as in `of ada`. */
  readonly text: (value: string) => string;
  /** Whether a value is one; others are left out. */
  readonly isValid?: (value: string) => boolean;
  /** Any of its values, which an address has with commas; or all of them, which it repeats. Others have one. */
  readonly many?: "any" | "all";
  readonly isFlag?: true;
}

const LABEL = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}:[^\0]{0,200}$/;
const OWNER = /^[A-Za-z0-9._@-]{1,100}$/;
const isTrue = (value: string): boolean => value === "true";
const isState = (value: string): boolean => STATES.some((state) => state === value);

const KINDS = {
  q: { text: (value) => `“${value}”` },
  owner: { text: (value) => `of ${value}`, isValid: (value) => OWNER.test(value) },
  trainer: { text: (value) => value },
  sweep: { text: () => "of one sweep" },
  schedule: { text: () => "of one schedule" },
  label: { text: (value) => value.replace(":", ": "), isValid: (value) => LABEL.test(value), many: "all" },
  starred: { text: () => "starred", isValid: isTrue, isFlag: true },
  archived: { text: () => "archived", isValid: isTrue, isFlag: true },
  state: { text: (value) => value, isValid: isState, many: "any" },
} as const satisfies Record<string, Kind>;

type Key = keyof typeof KINDS;

const KEYS = Object.keys(KINDS) as readonly Key[];

/** The values of each condition that there is. */
export type Conditions = Readonly<Partial<Record<Key, readonly string[]>>>;

/** Reads an address. What it does not know it leaves out. */
export function conditionsOf(query: URLSearchParams): Conditions {
  const found = KEYS.map((key) => [key, valuesOf(query, key)] as const);
  return Object.fromEntries(found.filter(([, values]) => values.length > 0));
}

function valuesOf(query: URLSearchParams, key: Key): readonly string[] {
  const { many, isValid = Boolean }: Kind = KINDS[key];
  const written = query.getAll(key).flatMap((text) => (many === "any" ? text.split(",") : [text]));
  const values = [...new Set(written)].filter(isValid);
  return many === undefined ? values.slice(0, 1) : values;
}

export function isFiltered(conditions: Conditions): boolean {
  return Object.keys(conditions).length > 0;
}

/** Returns the one value of a condition; empty without it. */
export function valueOf(conditions: Conditions, key: Key): string {
  return conditions[key]?.[0] ?? "";
}

/** Returns the body of a request that is for all that match. */
export function bodyOf(conditions: Conditions): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    KEYS.flatMap((key) => {
      const { many, isFlag }: Kind = KINDS[key];
      const values = conditions[key];
      return values ? [[key, isFlag ? true : many ? values : values[0]]] : [];
    }),
  );
}

/** Returns the part of an address that has the conditions. */
export function addressOf(conditions: Conditions): URLSearchParams {
  const address = new URLSearchParams();
  for (const key of KEYS) {
    const { many }: Kind = KINDS[key];
    const values = conditions[key] ?? [];
    for (const value of many === "any" && values.length > 0 ? [values.join(",")] : values)
      address.append(key, value);
  }
  return address;
}

/** A filter of a list: its words, and the change of the address that removes it. */
export interface Chip {
  readonly text: string;
  readonly without: Readonly<Record<string, string | null>>;
}

export function chipsOf(conditions: Conditions): readonly Chip[] {
  return KEYS.flatMap((key): readonly Chip[] => {
    const { many, text }: Kind = KINDS[key];
    const values = conditions[key] ?? [];
    if (many !== "any")
      return values.length > 0 ? [{ text: values.map(text).join(", "), without: { [key]: null } }] : [];
    return values.map((value) => ({
      text: text(value),
      without: { [key]: values.filter((other) => other !== value).join(",") || null },
    }));
  });
}

/** Returns the conditions in words; empty without any. */
export function textOf(conditions: Conditions): string {
  return chipsOf(conditions)
    .map(({ text }) => text)
    .join(", ");
}

/** The change of an address that takes all conditions back. */
export const UNFILTERED: Readonly<Record<string, null>> = Object.fromEntries(KEYS.map((key) => [key, null]));
