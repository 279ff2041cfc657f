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

export interface Filter {
  readonly q: string;
  /** The id of a sweep whose jobs are listed; empty for all. */
  readonly sweep: string;
  readonly states: readonly JobState[];
  readonly sort: Sort;
  /** The other way round: times oldest first, names from Z to A. */
  readonly isReversed: boolean;
}

/** Reads `q`, `sweep`, `state` (a list with commas) and `sort` of an address. What it does not know it leaves out. */
export function filterOf(query: URLSearchParams): Filter {
  const wanted = query.getAll("state").flatMap((text) => text.split(","));
  const sort = query.get("sort") ?? "created";
  const name = sort.replace(/^-/, "") as Sort;
  const isKnown = SORTS.includes(name);
  return {
    q: query.get("q") ?? "",
    sweep: query.get("sweep") ?? "",
    states: STATES.filter((state) => wanted.includes(state)),
    sort: isKnown ? name : "created",
    isReversed: isKnown && sort.startsWith("-"),
  };
}

/** Returns what the service is asked for. */
export function queryOf(filter: Filter): Query {
  const sort = (filter.isReversed ? "-" : "") + filter.sort;
  return { q: filter.q || null, sweep: filter.sweep || null, state: filter.states, sort };
}
