/** Which of many rows of one height are near the screen: only those are in the document. */

export interface Slice {
  readonly from: number;
  readonly to: number;
}

const AROUND = 8;

/** Returns the rows to draw of `count` whose first is at `top` px of the screen. */
export function near(count: number, rowHeight: number, top: number, screen: number): Slice {
  const first = Math.floor(-top / rowHeight) - AROUND;
  const from = Math.max(0, Math.min(first, count - AROUND));
  return { from, to: Math.min(count, Math.max(from, Math.ceil((screen - top) / rowHeight) + AROUND)) };
}

/** Sets properties of an element's style without an attribute, which the page's policy forbids. */
export function styled(properties: Readonly<Record<string, string>>): (node: HTMLElement) => void {
  return (node) => {
    for (const [name, value] of Object.entries(properties)) node.style.setProperty(name, value);
  };
}
