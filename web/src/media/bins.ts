/** Histograms as shapes: the bars of one, and many over steps on one grid. */
import type { Histogram } from "./data";

/** Returns the outline of the bars within a box, as an SVG path. A bar's area tells its count: bins may differ in width. */
export function barsPath({ edges, counts }: Histogram, width: number, height: number): string {
  const [low, high] = rangeOf(edges);
  const densities = counts.map((count, i) => count / Math.max(widthOf(edges, i), Number.MIN_VALUE));
  const most = Math.max(...densities, Number.MIN_VALUE);
  const x = (edge: number): number => round(((edge - low) / (high - low)) * width);
  return counts
    .map((_, i) => {
      const [left, right] = [x(edges[i] ?? low), x(edges[i + 1] ?? high)];
      const top = round(height - ((densities[i] ?? 0) / most) * height);
      return top >= height ? "" : `M${left} ${height}V${top}H${right}V${height}Z`;
    })
    .join("");
}

/** Returns the bin that holds a value, or null. */
export function binAt({ edges, counts }: Histogram, value: number): number | null {
  const found = edges.findIndex((edge) => edge > value) - 1;
  if (found >= 0) return found;
  return value === edges.at(-1) ? counts.length - 1 : null;
}

export function rangeOf(edges: readonly number[]): readonly [low: number, high: number] {
  const [low, high] = [edges[0] ?? 0, edges.at(-1) ?? 1];
  return high > low ? [low, high] : [low - 0.5, low + 0.5];
}

/** Returns the sum of the counts. */
export function total(histogram: Histogram): number {
  return histogram.counts.reduce((sum, count) => sum + count, 0);
}

/** Returns the share of a histogram in each of `rows` equal parts of the range: a bin counts where it overlaps. */
export function resampled(
  histogram: Histogram,
  [low, high]: readonly [number, number],
  rows: number,
): readonly number[] {
  const { edges, counts } = histogram;
  const all = total(histogram) || 1;
  const shares = new Array<number>(rows).fill(0);
  const rowHeight = (high - low) / rows;
  for (const [i, count] of counts.entries()) {
    if (count === 0) continue;
    const [left, right] = [edges[i] ?? 0, edges[i + 1] ?? 0];
    const first = Math.max(0, Math.floor((left - low) / rowHeight));
    const last = Math.min(rows - 1, Math.floor((right - low) / rowHeight));
    for (let row = first; row <= last; row++) {
      const [from, to] = [low + row * rowHeight, low + (row + 1) * rowHeight];
      const part =
        right > left ? (Math.min(right, to) - Math.max(left, from)) / (right - left) : row === first ? 1 : 0;
      shares[row] = (shares[row] ?? 0) + (Math.max(0, part) * count) / all;
    }
  }
  return shares;
}

function widthOf(edges: readonly number[], bin: number): number {
  return (edges[bin + 1] ?? 0) - (edges[bin] ?? 0);
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
