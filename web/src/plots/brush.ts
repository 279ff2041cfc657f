/** Ranges on axes: only runs within all of them are kept. */
import { numberAt, shareOf, type PlotRow, type Variable } from "./rows";
import { ticksOf, valueText } from "./ticks";

/** Shares of an axis, from below to above. */
export interface Range {
  readonly from: number;
  readonly to: number;
}

export type Brushes = Readonly<Record<string, Range>>;

const STEP = 0.05;
/** So that a value at the edge of a range is within, whatever was rounded. */
const EDGE = 1e-9;

/** Returns the range on the axis of a key, which may be any text. */
export function rangeOf(brushes: Brushes, key: string): Range | undefined {
  return Object.hasOwn(brushes, key) ? brushes[key] : undefined;
}

/** Returns which of the rows lie within all ranges. A run without a value of a brushed axis does not. */
export function kept(
  rows: readonly PlotRow[],
  variables: readonly Variable[],
  brushes: Brushes,
): readonly boolean[] {
  const brushed = variables.filter(({ key }) => rangeOf(brushes, key));
  return rows.map((row) =>
    brushed.every((variable) => {
      const share = shareOf(variable, row.values[variable.key]);
      const range = rangeOf(brushes, variable.key);
      return share !== null && range && share >= range.from - EDGE && share <= range.to + EDGE;
    }),
  );
}

/**
 * Returns the range after a key: arrows move it (with Shift its upper end alone), Escape and Delete take it away;
 * undefined for other keys. Without a range, ↑ begins with the upper half and ↓ with the lower.
 */
export function brushedBy(range: Range | undefined, key: string, isShift: boolean): Range | null | undefined {
  if (key === "Escape" || key === "Delete" || key === "Backspace") return range ? null : undefined;
  if (key !== "ArrowUp" && key !== "ArrowDown") return undefined;
  const by = key === "ArrowUp" ? STEP : -STEP;
  if (!range) return by > 0 ? { from: 0.5, to: 1 } : { from: 0, to: 0.5 };
  if (isShift)
    return { from: range.from, to: rounded(Math.max(range.from + STEP, Math.min(1, range.to + by))) };
  const shift = Math.max(-range.from, Math.min(1 - range.to, by));
  return { from: rounded(range.from + shift), to: rounded(range.to + shift) };
}

/** Says what a range holds: `0.01 to 0.1`, or the categories. */
export function rangeText(variable: Variable, range: Range | undefined): string {
  if (!range) return "all";
  if (variable.categories) {
    const names = ticksOf(variable, Infinity).filter(
      ({ share }) => share >= range.from - EDGE && share <= range.to + EDGE,
    );
    return names.map(({ text }) => text).join(", ") || "none";
  }
  return `${valueText(numberAt(variable, range.from))} to ${valueText(numberAt(variable, range.to))}`;
}

/** Reads `lr:0.2~0.5,…`, as an address holds it. */
export function brushesOf(text: string | null): Brushes {
  const found = new Map<string, Range>();
  for (const part of (text ?? "").split(",")) {
    const [, key, from, to] = /^(.+):([\d.]+)~([\d.]+)$/.exec(part) ?? [];
    const range = { from: Number(from), to: Number(to) };
    if (key && range.from >= 0 && range.to <= 1 && range.from <= range.to) found.set(decoded(key), range);
  }
  return Object.fromEntries(found);
}

export function brushText(brushes: Brushes): string {
  return Object.entries(brushes)
    .map(([key, { from, to }]) => `${encodeURIComponent(key)}:${rounded(from)}~${rounded(to)}`)
    .join(",");
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function rounded(share: number): number {
  return Number(share.toFixed(4));
}
