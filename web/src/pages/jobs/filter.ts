/** Which jobs are listed and how, as the address has it. */
import type { Query } from "../../api/client";
import { betterOf } from "../../plots/direction";
import { isGrouping, isSortable, metricOf } from "../../runs/columns";
import { conditionsOf, type Conditions } from "../../runs/filters";

/** The orders of lists, besides those by columns. */
export const SORTS: readonly string[] = [
  ...["created", "started", "finished", "name", "owner", "state", "priority"],
];

const KEY = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$/;

export interface Filter {
  readonly conditions: Conditions;
  /** By whose values they are grouped: `sweep`, `label:KEY` or a path into the spec; empty for none. */
  readonly groupBy: string;
  /** One of `SORTS`, or a column's name. */
  readonly sort: string;
  /** The other way round: times oldest first, names from Z to A. */
  readonly isReversed: boolean;
}

/** Reads an address. What it does not know it leaves out. */
export function filterOf(query: URLSearchParams): Filter {
  const sort = query.get("sort") ?? "created";
  const name = sort.replace(/^-/, "");
  const isKnown = SORTS.includes(name) || isSortable(name);
  return {
    conditions: conditionsOf(query),
    groupBy: groupOf(query.get("group") ?? ""),
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
export function queryOf({ conditions, sort, isReversed }: Filter): Query {
  return { ...conditions, sort: (isReversed ? "-" : "") + sort };
}

/** Returns in which order a list is sorted by it first: by a metric that should be great, from the greatest down. */
export function firstOrder(by: string): string {
  const metric = metricOf(by);
  return metric && betterOf(metric.key) === "max" ? `-${by}` : by;
}
