/** Draws how values are distributed over steps: the darker, the more. */
import { between } from "./colours";
import type { Colour } from "./masks";

/** Returns RGBA pixels: one wide for each column of shares, and one high for each of its rows, the least values below. */
export function densityPixels(
  columns: readonly (readonly number[])[],
  rows: number,
  [from, to]: readonly [none: Colour, most: Colour],
): Uint8ClampedArray<ArrayBuffer> {
  const most = Math.max(...columns.map((column) => Math.max(...column)), Number.MIN_VALUE);
  const pixels = new Uint8ClampedArray(columns.length * rows * 4);
  for (const [x, column] of columns.entries())
    for (const [row, share] of column.entries()) {
      const at = ((rows - 1 - row) * columns.length + x) * 4;
      pixels.set([...between(from, to, Math.sqrt(share / most)), 255], at);
    }
  return pixels;
}
