/** Which of many rows of one height are near the screen: only those are in the document. */

export interface Slice {
  readonly from: number;
  readonly to: number;
}

/** A line with its place among all. */
export interface Placed<T> {
  readonly line: T;
  readonly at: number;
}

const AROUND = 8;

/** Returns the rows to draw of `count` whose first is at `top` px of the screen. */
export function near(count: number, rowHeight: number, top: number, screen: number): Slice {
  const first = Math.floor(-top / rowHeight) - AROUND;
  const from = Math.max(0, Math.min(first, count - AROUND));
  return { from, to: Math.min(count, Math.max(from, Math.ceil((screen - top) / rowHeight) + AROUND)) };
}

/** Returns the lines of a slice. What was there before is the same object, all of it if nothing changed: then nothing is drawn again. */
export function placed<T>(
  lines: readonly T[],
  { from, to }: Slice,
  before: readonly Placed<T>[],
): readonly Placed<T>[] {
  const start = before[0]?.at ?? 0;
  const found = lines.slice(from, to).map((line, index) => {
    const known = before[from + index - start];
    return known?.line === line ? known : { line, at: from + index };
  });
  return found.length === before.length && found.every((one, index) => one === before[index])
    ? before
    : found;
}

/** Sets properties of an element's style without an attribute, which the page's policy forbids. */
export function styled(properties: Readonly<Record<string, string>>): (node: HTMLElement) => void {
  return (node) => {
    for (const [name, value] of Object.entries(properties)) node.style.setProperty(name, value);
  };
}
