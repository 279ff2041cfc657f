/** Which jobs are listed, as the address has it. */
import type { Query } from "../../api/client";
import type { JobState } from "../../api/wire";

export const STATES: readonly JobState[] = [
  "running",
  "starting",
  "queued",
  "paused",
  "failed",
  "succeeded",
  "cancelled",
];
export const SORTS = ["created", "started", "finished", "name", "owner", "state", "priority"] as const;
export type Sort = (typeof SORTS)[number];

const KEY = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$/;
const LABEL = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}:[^\0]{0,200}$/;

export interface Filter {
  readonly q: string;
  /** The id of a sweep whose jobs are listed; empty for all. */
  readonly sweep: string;
  /** A label that they must have, `key:value`; empty for any. */
  readonly label: string;
  readonly isStarred: boolean;
  /** The archived jobs, in place of the others. */
  readonly isArchived: boolean;
  /** The key of the label by which they are counted; empty for none. */
  readonly groupBy: string;
  readonly states: readonly JobState[];
  readonly sort: Sort;
  /** The other way round: times oldest first, names from Z to A. */
  readonly isReversed: boolean;
}

/** Reads an address; `state` is a list with commas. What it does not know it leaves out. */
export function filterOf(query: URLSearchParams): Filter {
  const wanted = query.getAll("state").flatMap((text) => text.split(","));
  const sort = query.get("sort") ?? "created";
  const name = sort.replace(/^-/, "") as Sort;
  const isKnown = SORTS.includes(name);
  return {
    q: query.get("q") ?? "",
    sweep: query.get("sweep") ?? "",
    label: LABEL.test(query.get("label") ?? "") ? (query.get("label") ?? "") : "",
    isStarred: query.get("starred") === "true",
    isArchived: query.get("archived") === "true",
    groupBy: KEY.test(query.get("group") ?? "") ? (query.get("group") ?? "") : "",
    states: STATES.filter((state) => wanted.includes(state)),
    sort: isKnown ? name : "created",
    isReversed: isKnown && sort.startsWith("-"),
  };
}

/** Returns what the service is asked for. */
export function queryOf(filter: Filter): Query {
  const sort = (filter.isReversed ? "-" : "") + filter.sort;
  return {
    q: filter.q || null,
    sweep: filter.sweep || null,
    label: filter.label || null,
    starred: filter.isStarred || null,
    archived: filter.isArchived || null,
    state: filter.states,
    sort,
  };
}
