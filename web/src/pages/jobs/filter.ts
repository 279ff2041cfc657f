/** Which jobs are listed and how, as the address has it. */
import type { Query } from "../../api/client";
import type { JobState } from "../../api/wire";
import { betterOf } from "../../plots/direction";
import { isGrouping, isSortable, metricOf } from "../../runs/columns";

export const STATES: readonly JobState[] = [
  "running",
  "starting",
  "queued",
  "paused",
  "failed",
  "succeeded",
  "cancelled",
];
/** The orders of lists, besides those by columns. */
export const SORTS: readonly string[] = [
  ...["created", "started", "finished", "name", "owner", "state", "priority"],
];

const KEY = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$/;
const LABEL = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}:[^\0]{0,200}$/;
const OWNER = /^[A-Za-z0-9._@-]{1,100}$/;

export interface Filter {
  readonly q: string;
  /** Whose jobs are listed; empty for everybody's. */
  readonly owner: string;
  /** The id of a sweep whose jobs are listed; empty for all. */
  readonly sweep: string;
  /** A label that they must have, `key:value`; empty for any. */
  readonly label: string;
  readonly isStarred: boolean;
  /** The archived jobs, in place of the others. */
  readonly isArchived: boolean;
  /** By whose values they are grouped: `sweep`, `label:KEY` or a path into the spec; empty for none. */
  readonly groupBy: string;
  readonly states: readonly JobState[];
  /** One of `SORTS`, or a column's name. */
  readonly sort: string;
  /** The other way round: times oldest first, names from Z to A. */
  readonly isReversed: boolean;
}

/** Reads an address; `state` is a list with commas. What it does not know it leaves out. */
export function filterOf(query: URLSearchParams): Filter {
  const wanted = query.getAll("state").flatMap((text) => text.split(","));
  const sort = query.get("sort") ?? "created";
  const name = sort.replace(/^-/, "");
  const isKnown = SORTS.includes(name) || isSortable(name);
  const matching = (key: string, pattern: RegExp): string =>
    pattern.test(query.get(key) ?? "") ? (query.get(key) ?? "") : "";
  return {
    q: query.get("q") ?? "",
    owner: matching("owner", OWNER),
    sweep: query.get("sweep") ?? "",
    label: matching("label", LABEL),
    isStarred: query.get("starred") === "true",
    isArchived: query.get("archived") === "true",
    groupBy: groupOf(query.get("group") ?? ""),
    states: STATES.filter((state) => wanted.includes(state)),
    sort: isKnown ? name : "created",
    isReversed: isKnown && sort.startsWith("-"),
  };
}

/** Returns what jobs are grouped by for what is written: a word alone is the key of a label. Empty for nothing. */
export function groupOf(text: string): string {
  if (isGrouping(text)) return text;
  return KEY.test(text) ? `label:${text}` : "";
}

/** Returns what the service is asked for. */
export function queryOf(filter: Filter): Query {
  return { ...matchingOf(filter), sort: (filter.isReversed ? "-" : "") + filter.sort };
}

/** Returns the filter alone, without the order. */
export function matchingOf(filter: Filter): Query {
  return {
    q: filter.q || null,
    owner: filter.owner || null,
    sweep: filter.sweep || null,
    label: filter.label || null,
    starred: filter.isStarred || null,
    archived: filter.isArchived || null,
    state: filter.states,
  };
}

/** Returns in which order a list is sorted by it first: by a metric that should be great, from the greatest down. */
export function firstOrder(by: string): string {
  const metric = metricOf(by);
  return metric && betterOf(metric.key) === "max" ? `-${by}` : by;
}

/** What narrows a list, each with what takes it back. */
export interface Condition {
  readonly text: string;
  readonly without: Readonly<Record<string, string | null>>;
}

export function conditionsOf(filter: Filter): readonly Condition[] {
  const found: Condition[] = [];
  if (filter.q) found.push({ text: `“${filter.q}”`, without: { q: null } });
  if (filter.owner) found.push({ text: `of ${filter.owner}`, without: { owner: null } });
  if (filter.sweep) found.push({ text: "of one sweep", without: { sweep: null } });
  if (filter.label) found.push({ text: filter.label.replace(":", ": "), without: { label: null } });
  if (filter.isStarred) found.push({ text: "starred", without: { starred: null } });
  if (filter.isArchived) found.push({ text: "archived", without: { archived: null } });
  for (const state of filter.states) {
    const rest = filter.states.filter((other) => other !== state).join(",");
    found.push({ text: state, without: { state: rest || null } });
  }
  return found;
}

/** The changes of an address that take all conditions back. */
export const UNFILTERED: Readonly<Record<string, null>> = {
  ...{ q: null, owner: null, sweep: null, label: null, starred: null, archived: null, state: null },
};
