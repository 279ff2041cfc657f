/** What the page's address says of the log: the filter, the search and the chosen line. */
import type { Query } from "../../../api/client";
import type { LiveLine, LogLine } from "../../../api/wire";

export interface LogAddress {
  /** A rank, `launcher`, or null for all. */
  readonly rank: string | null;
  readonly attempt: string | null;
  /** What is searched, or "". */
  readonly wanted: string;
  readonly isRegex: boolean;
  /** Whether matches alone are listed. */
  readonly isOnly: boolean;
  /** The number of the chosen line, or 0. */
  readonly chosen: number;
}

export function readAddress(query: URLSearchParams): LogAddress {
  const wanted = query.get("q") ?? "";
  return {
    rank: query.get("rank"),
    attempt: query.get("attempt"),
    wanted,
    isRegex: query.get("regex") === "1",
    isOnly: query.get("only") === "1" && wanted !== "",
    chosen: Number(query.get("line") ?? 0),
  };
}

/** Returns the filter as the service has it. */
export function filterOf({ rank, attempt }: LogAddress): Query {
  return rank === "launcher" ? { launcher: true, attempt } : { rank, attempt };
}

/** Returns the search as the service has it, or null where nothing is searched. */
export function searchOf(address: LogAddress): Query | null {
  if (address.wanted === "") return null;
  return { q: address.wanted, regex: address.isRegex, ...filterOf(address) };
}

/** Says whether a line passes the filter. */
export function passes({ rank, attempt }: LogAddress, line: LogLine | LiveLine): boolean {
  return (
    (rank === null || String(line.rank ?? "launcher") === rank) &&
    (attempt === null || String(line.attempt) === attempt)
  );
}
