/** The columns of a table of jobs: those of the page, and values that the service answers by the names of its columns. */
import { shortKeys } from "../text/keys";
import { listOf } from "../text/list";

/** Columns that the page makes of what every row of a list has. */
export const OWN = ["progress", "metric", "owner", "devices", "age", "labels"] as const;
export type Own = (typeof OWN)[number];
export const USUAL: readonly string[] = ["progress", "metric", "owner", "devices", "age"];
/** The most columns that the service answers at once. */
export const MOST = 30;
export const FIGURES = ["best", "last", "min", "max"] as const;
export type Figure = (typeof FIGURES)[number];

export type Value = string | number | boolean | null;

export interface Column {
  readonly name: string;
  readonly title: string;
  /** What a list is sorted by for it; null where it has no order. */
  readonly sort: string | null;
}

const TITLES: Readonly<Record<Own, string>> = {
  progress: "Progress",
  metric: "Metric",
  owner: "Owner",
  devices: "Devices",
  age: "Age",
  labels: "Labels",
};
const NAME =
  /^([A-Za-z_][A-Za-z0-9_/-]{0,99}(\.[A-Za-z_][A-Za-z0-9_/-]{0,99}){0,15}|metric:[ -~\u00a0-\uffff]{1,200}:(best|last|min|max)|label:[A-Za-z0-9][A-Za-z0-9._/-]{0,62})$/;

export function isOwn(name: string): name is Own {
  return (OWN as readonly string[]).includes(name);
}

/**
 * Returns the columns of these names, each with a title of as few words as tell it from the others.
 *
 * `watched` is what the column of the watched metric sorts by.
 */
export function columnsOf(names: readonly string[], watched: string | null = null): readonly Column[] {
  const paths = names.filter((name) => !isOwn(name) && !name.includes(":"));
  const short = shortKeys(paths);
  return names.map((name) => ({
    name,
    title: isOwn(name) ? TITLES[name] : (short.get(name) ?? titleOf(name)),
    sort: sortOf(name, watched),
  }));
}

function sortOf(name: string, watched: string | null): string | null {
  if (name === "owner") return name;
  const by = name === "metric" ? watched : name;
  return by !== null && isSortable(by) ? by : null;
}

/** Returns the name of a column for people: `val/loss best`, `team`. */
export function titleOf(name: string): string {
  const metric = metricOf(name);
  return metric ? `${metric.key} ${metric.figure}` : name.replace(/^label:/, "");
}

/** Returns the metric of a column's name; null of another one. */
export function metricOf(name: string): { readonly key: string; readonly figure: Figure } | null {
  const at = name.lastIndexOf(":");
  if (!name.startsWith("metric:") || at < 7) return null;
  return { key: name.slice(7, at), figure: name.slice(at + 1) as Figure };
}

/** Returns the names that the service knows. */
export function askedOf(names: readonly string[]): readonly string[] {
  return names.filter((name) => !isOwn(name) && !isArgument(name));
}

/** Whether a list can be sorted by it: the service tells columns from its other orders by a dot or a colon. */
export function isSortable(name: string): boolean {
  return /[.:]/.test(name) && NAME.test(name) && !isArgument(name);
}

/** Whether it is an option of a script that a sweep varies: jobs have it in their points, and no column. */
export function isArgument(name: string): boolean {
  return name.startsWith("args.");
}

/** Whether jobs can be grouped by it. */
export function isGrouping(name: string): boolean {
  if (isArgument(name)) return false;
  return name === "sweep" || (NAME.test(name) && (name.startsWith("label:") || /^[^:]*\.[^:]*$/.test(name)));
}

/** Reads the names in an address. What is no column is left out, and so are those beyond the most. */
export function read(text: string): readonly string[] {
  const known = listOf(text).filter((name) => isOwn(name) || NAME.test(name));
  return [...new Set(known)].slice(0, MOST);
}

/** Says whether a cell shows a number. */
export function isNumeric(value: Value | undefined, name: string): value is number | string {
  return typeof value === "number" || (typeof value === "string" && name.startsWith("metric:"));
}
