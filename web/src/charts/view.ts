/** What the charts of a page show, as the query of its address holds it. */
import { listOf, listText } from "../text/list";
import { X_KINDS, type XKind } from "./axis";
import type { Span } from "./span";

export interface ChartsView {
  readonly x: XKind;
  /** Weight of the moving average of a curve of 1,000 points, 0 … 0.99. */
  readonly smooth: number;
  readonly robust: boolean;
  /** Shows tails that a later attempt replaced. */
  readonly ghost: boolean;
  /** Keys with a logarithmic y axis; `*` for all. */
  readonly log: readonly string[];
  /** Keys whose chart takes the whole width; of the monitored metric, which does so otherwise, that it does not. */
  readonly wide: readonly string[];
  /** Keys whose chart shows also what lies far from the rest. */
  readonly all: readonly string[];
  /** Jobs whose curves are not drawn. */
  readonly hide: readonly string[];
  /** Bands of groups reach from the least to the greatest value. */
  readonly isRange: boolean;
  readonly filter: string;
  /** Takes in nothing new. */
  readonly paused: boolean;
  readonly zoom: Span | null;
}

const SMOOTH = 0.9;

/** Reads the view of a query. Without epochs, what is asked for by epoch is shown by step. */
export function readView(query: URLSearchParams, { hasEpochs = true } = {}): ChartsView {
  const asked = query.get("x") ?? "step";
  const isWithout = asked === "epoch" && !hasEpochs;
  const x = isWithout ? "step" : asked;
  const smooth = Number(query.get("smooth") ?? SMOOTH);
  return {
    x: Object.hasOwn(X_KINDS, x) ? (x as XKind) : "step",
    smooth: Number.isFinite(smooth) ? Math.min(0.99, Math.max(0, smooth)) : SMOOTH,
    robust: query.get("robust") === "1",
    ghost: query.get("ghost") === "1",
    log: listOf(query.get("log") ?? ""),
    wide: listOf(query.get("wide") ?? ""),
    all: listOf(query.get("all") ?? ""),
    hide: listOf(query.get("hide") ?? ""),
    isRange: query.get("spread") === "range",
    filter: query.get("filter") ?? "",
    paused: query.get("live") === "0",
    zoom: isWithout ? null : spanOf(query.get("zoom")),
  };
}

/** Returns what to change in the query; what is as by default is left out. */
export function queryOf(view: Partial<ChartsView>): Record<string, string | null> {
  const found: Record<string, string | null> = {};
  if (view.x !== undefined) found["x"] = view.x === "step" ? null : view.x;
  if (view.smooth !== undefined) found["smooth"] = view.smooth === SMOOTH ? null : String(view.smooth);
  if (view.robust !== undefined) found["robust"] = view.robust ? "1" : null;
  if (view.ghost !== undefined) found["ghost"] = view.ghost ? "1" : null;
  if (view.log !== undefined) found["log"] = listText(view.log) || null;
  if (view.wide !== undefined) found["wide"] = listText(view.wide) || null;
  if (view.all !== undefined) found["all"] = listText(view.all) || null;
  if (view.hide !== undefined) found["hide"] = listText(view.hide) || null;
  if (view.isRange !== undefined) found["spread"] = view.isRange ? "range" : null;
  if (view.paused !== undefined) found["live"] = view.paused ? "0" : null;
  if (view.filter !== undefined) found["filter"] = view.filter || null;
  if (view.zoom !== undefined)
    found["zoom"] = view.zoom ? `${shortest(view.zoom.min)}~${shortest(view.zoom.max)}` : null;
  return found;
}

/** Returns the list with the item if it lacked it, else without. */
export function toggled(list: readonly string[], item: string): readonly string[] {
  return list.includes(item) ? list.filter((other) => other !== item) : [...list, item];
}

function spanOf(text: string | null): Span | null {
  const [min = NaN, max = NaN] = (text ?? "").split("~").map(Number);
  return Number.isFinite(min) && Number.isFinite(max) && min < max ? { min, max } : null;
}

function shortest(value: number): string {
  return String(Number(value.toFixed(Math.abs(value) < 100 ? 4 : 1)));
}
