/** Which part of the y axis a chart shows, and what that leaves out. */
import { hasBands, type Line } from "./line";
import type { Span } from "./span";

export interface YView {
  readonly log: boolean;
  /** Leaves out values far from the middle 96% of each series. */
  readonly robust: boolean;
  /** Shows all, also where a spike would flatten the rest. */
  readonly all?: boolean;
}

/** What a chart tells in words: extremes of what is in the range of x, and what is not drawn as a line. */
export interface Measure {
  readonly y: Span;
  readonly rows: number;
  readonly points: number;
  readonly lowest: number;
  readonly highest: number;
  readonly above: number;
  readonly below: number;
  /** Rows at or below 0, which a logarithmic axis cannot show. */
  readonly nonpositive: number;
  /** Points that are NaN or infinite. */
  readonly nonfinite: number;
  /** Whether a series has a spike that would flatten the rest. */
  readonly hasSpike: boolean;
}

/** How much more than the middle 96% of a series a spike covers. */
const SPIKE = 20;
const SPIKE_SAMPLES = 128;
const OUTSIDE = 0.02;
const SAMPLES = 512;
const FEW_ROWS = 10;

/** Measures the rows of all lines in a range of x. */
export function measure(lines: readonly Line[], x: Span, view: YView): Measure {
  let [lowest, highest] = [Infinity, -Infinity];
  let [rows, points, nonpositive, nonfinite] = [0, 0, 0, 0];
  let hasSpike = false;
  const spans: Span[] = [];
  const withBands = hasBands(lines);
  for (const line of lines) {
    const { columns } = line;
    const edges = edgesOf(line, withBands);
    const [from, to] = rowsWithin(line, x);
    rows += to - from;
    for (let i = from; i < to; i++) {
      points += columns.weight[i] ?? 0;
      nonfinite += columns.nonfinite[i] ?? 0;
      if (view.log && (edges.bottoms[i] ?? NaN) <= 0) nonpositive += 1;
    }
    const within = extremesOf(edges, from, to, view.log);
    lowest = Math.min(lowest, within?.min ?? Infinity);
    highest = Math.max(highest, within?.max ?? -Infinity);
    const [first, end] = to - from < FEW_ROWS ? withNeighbours(line, from, to) : [from, to];
    const whole = extremesOf(edges, first, end, view.log);
    if (!whole) continue;
    const isSpiky = end - first >= FEW_ROWS && hasSpikeWithin(edges, first, end, whole, view.log);
    hasSpike ||= isSpiky;
    const isCut = !view.all && (view.robust || isSpiky);
    spans.push(isCut ? robustSpan(edges, first, end, whole, view.log) : whole);
  }
  const y = padded(spans, view.log);
  const isCut = !view.all && (view.robust || hasSpike);
  const [above, below] = isCut ? countOutside(lines, x, y, view.log) : [0, 0];
  return { y, rows, points, lowest, highest, above, below, nonpositive, nonfinite, hasSpike };
}

/** Returns the rows of a line in a range of x, from the first to before the last. */
export function rowsWithin(line: Line, x: Span): readonly [number, number] {
  const place = (row: number): number => line.x(row);
  const from = line.columns.firstAtOrAfter(x.min, place);
  let to = line.columns.firstAtOrAfter(x.max, place);
  while (to < line.columns.length && place(to) <= x.max) to += 1;
  return [from, to];
}

/** A few rows take those beside the range with them, to which their line leads. */
function withNeighbours(line: Line, from: number, to: number): readonly [number, number] {
  const isBeyond = from === to && (from === 0 || to === line.columns.length);
  return isBeyond ? [from, to] : [Math.max(0, from - 1), Math.min(line.columns.length, to + 1)];
}

interface Edges {
  readonly bottoms: Float64Array;
  readonly tops: Float64Array;
  readonly means: Float64Array;
}

/** Returns the lowest and highest values of a line's rows, or twice its means where bands are not drawn. */
function edgesOf({ columns }: Line, withBands: boolean): Edges {
  const { min, max, mean } = columns;
  return withBands ? { bottoms: min, tops: max, means: mean } : { bottoms: mean, tops: mean, means: mean };
}

/** Returns the extremes of what can be drawn, or null. Of a bucket that reaches to 0 a logarithmic axis shows the mean. */
function extremesOf({ bottoms, tops, means }: Edges, from: number, to: number, log: boolean): Span | null {
  let [min, max] = [Infinity, -Infinity];
  const floor = log ? Number.MIN_VALUE : -Number.MAX_VALUE;
  for (let i = from; i < to; i++) {
    const mean = means[i] ?? NaN;
    const bottom = bottoms[i] ?? NaN;
    const top = tops[i] ?? NaN;
    const low = bottom >= floor ? bottom : mean;
    if (low >= floor && low < min) min = low;
    if (top >= floor && top < Infinity && top > max) max = top;
  }
  return min <= max ? { min, max } : null;
}

/** Says whether the series covers more than 20 times its middle 96%. A constant one with an event has no spike. */
function hasSpikeWithin({ means }: Edges, from: number, to: number, whole: Span, log: boolean): boolean {
  const size = (low: number, high: number): number => (log ? Math.log10(high / low) : high - low);
  const all = size(whole.min, whole.max);
  // A look at nine values finds most series to have none, without sorting more.
  if (all <= SPIKE * middleOf(sample(means.subarray(from, to), log, 9))) return false;
  const middle = middleOf(sample(means.subarray(from, to), log, SPIKE_SAMPLES));
  return middle > 0 && all > SPIKE * middle;
}

/** Returns how much the values cover without the outermost 2% on each side, and at least without one. */
function middleOf(sorted: Float64Array): number {
  const edge = Math.max(1, Math.floor(sorted.length * OUTSIDE));
  return (sorted[sorted.length - 1 - edge] ?? 0) - (sorted[edge] ?? 0);
}

/** Returns the extremes of a series without what lies far outside: beyond its middle 96% and thrice its interquartile range. */
function robustSpan({ bottoms, tops }: Edges, from: number, to: number, whole: Span, log: boolean): Span {
  const lows = bottoms.subarray(from, to);
  const highs = tops.subarray(from, to);
  const [low] = fencesOf(sample(lows, log, SAMPLES));
  const [, high] = fencesOf(sample(highs, log, SAMPLES));
  const back = (value: number): number => (log ? 10 ** value : value);
  let [min, max] = [Infinity, -Infinity];
  for (const value of lows) if (value >= back(low) && value < min) min = value;
  for (const value of highs) if (value <= back(high) && value > max) max = value;
  return min <= max ? { min, max } : whole;
}

function fencesOf(sorted: Float64Array): readonly [number, number] {
  const at = (share: number): number => sorted[Math.round((sorted.length - 1) * share)] ?? NaN;
  const room = 3 * (at(0.75) - at(0.25));
  const edge = Math.max(1, Math.floor(sorted.length * OUTSIDE));
  return [
    Math.min(sorted[edge] ?? NaN, at(0.25) - room),
    Math.max(sorted[sorted.length - 1 - edge] ?? NaN, at(0.75) + room),
  ];
}

/** Returns some values in their order, as logarithms where the axis is logarithmic. */
function sample(all: Float64Array, log: boolean, most: number): Float64Array {
  const values: number[] = [];
  const stride = Math.max(1, Math.floor(all.length / most));
  for (let i = 0; i < all.length; i += stride) {
    const value = all[i] ?? NaN;
    if (Number.isFinite(value) && !(log && value <= 0)) values.push(log ? Math.log10(value) : value);
  }
  return Float64Array.from(values).sort();
}

/** Joins spans and leaves a little air; 0 stays the floor of what is never negative. */
function padded(spans: readonly Span[], log: boolean): Span {
  if (spans.length === 0) return log ? { min: 0.1, max: 1 } : { min: 0, max: 1 };
  const min = Math.min(...spans.map((span) => span.min));
  const max = Math.max(...spans.map((span) => span.max));
  if (log) {
    const air = Math.max(0.04 * Math.log10(max / min), 0.02);
    return { min: min / 10 ** air, max: max * 10 ** air };
  }
  const air = max > min ? (max - min) * 0.05 : Math.abs(max) * 0.1 || 1;
  return { min: min >= 0 && min - air < 0 ? 0 : min - air, max: max + air };
}

function countOutside(lines: readonly Line[], x: Span, y: Span, log: boolean): [number, number] {
  let [above, below] = [0, 0];
  const withBands = hasBands(lines);
  for (const line of lines) {
    const { bottoms, tops } = edgesOf(line, withBands);
    const [from, to] = rowsWithin(line, x);
    for (let i = from; i < to; i++) {
      const bottom = bottoms[i] ?? NaN;
      if ((tops[i] ?? NaN) > y.max) above += 1;
      else if (bottom < y.min && !(log && bottom <= 0)) below += 1;
    }
  }
  return [above, below];
}
