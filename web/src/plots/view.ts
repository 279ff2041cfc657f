/** What the plots of a page show, as the query of its address holds it. */
import { listOf, listText } from "../text/list";
import { brushesOf, brushText, type Brushes } from "./brush";

export interface PlotsView {
  /** The metric that colours runs; empty for the first. */
  readonly target: string;
  /** Keys of the axes in their order; null for those that are chosen by themselves. */
  readonly axes: readonly string[] | null;
  readonly brushes: Brushes;
  /** Keys of the scatter's axes; empty for those that are chosen by themselves. */
  readonly x: string;
  readonly y: string;
}

export function readPlots(query: URLSearchParams): PlotsView {
  const axes = query.get("axes");
  return {
    target: query.get("target") ?? "",
    axes: axes === null ? null : listOf(axes),
    brushes: brushesOf(query.get("brush")),
    x: query.get("plot_x") ?? "",
    y: query.get("plot_y") ?? "",
  };
}

/** Returns what to change in the query. */
export function queryOf(view: Partial<PlotsView>): Record<string, string | null> {
  const found: Record<string, string | null> = {};
  if (view.target !== undefined) found["target"] = view.target || null;
  if (view.axes !== undefined) found["axes"] = view.axes && listText(view.axes);
  if (view.brushes !== undefined) found["brush"] = brushText(view.brushes) || null;
  if (view.x !== undefined) found["plot_x"] = view.x || null;
  if (view.y !== undefined) found["plot_y"] = view.y || null;
  return found;
}
