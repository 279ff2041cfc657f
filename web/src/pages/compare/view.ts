/** What Compare shows, as the query of its address holds it. */
import { listOf, listText } from "../../text/list";

export interface CompareView {
  /** The job from which the others differ; null for none. */
  readonly base: string | null;
  /** The id of the column that sorts, with a `-` for the other way; empty for the order of the address. */
  readonly sort: string;
  /** By what the jobs are grouped in the curves; empty for not at all. */
  readonly group: string;
  /** Whether metrics have their best values, instead of their newest. */
  readonly isBest: boolean;
  /** Metrics in the table; null for those that are chosen by themselves. */
  readonly metrics: readonly string[] | null;
  /** Whose code and packages are compared; empty for the baseline, or the first job, and the next. */
  readonly pair: readonly string[];
}

export function readCompare(query: URLSearchParams): CompareView {
  const metrics = query.get("metrics");
  return {
    base: query.get("base"),
    sort: query.get("sort") ?? "",
    group: query.get("group") ?? "",
    isBest: query.get("values") === "best",
    metrics: metrics === null ? null : listOf(metrics),
    pair: listOf(query.get("pair") ?? ""),
  };
}

/** Returns what to change in the query. */
export function queryOf(view: Partial<CompareView>): Record<string, string | null> {
  const found: Record<string, string | null> = {};
  if (view.base !== undefined) found["base"] = view.base;
  if (view.sort !== undefined) found["sort"] = view.sort || null;
  if (view.group !== undefined) found["group"] = view.group || null;
  if (view.isBest !== undefined) found["values"] = view.isBest ? "best" : null;
  // A comma alone: none. Without the key, those that are chosen by themselves are shown.
  if (view.metrics !== undefined) found["metrics"] = view.metrics && (listText(view.metrics) || ",");
  if (view.pair !== undefined) found["pair"] = listText(view.pair) || null;
  return found;
}
