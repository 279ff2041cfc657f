/** The scrollbar of a log. Browsers limit the height of an element: a long log is mapped to fewer pixels than its lines have. */

/** Pixels of a line. */
export const ROW = 18;
const MOST_PIXELS = 5_000_000;

/** What a scrollbar is for. */
export interface Extent {
  /** Lines of the whole log. */
  readonly length: number;
  /** Lines that fit into the view, and its height in pixels. */
  readonly rows: number;
  readonly viewport: number;
}

/** Returns the pixels that stand for a whole log. */
export function heightOf(length: number): number {
  return Math.min(length * ROW, MOST_PIXELS);
}

/** Returns how far the bar is scrolled while line `first`, counted from 0, is the first that can be seen. */
export function offsetOf(first: number, { length, rows, viewport }: Extent): number {
  const share = length > rows ? Math.min(first / (length - rows), 1) : 0;
  return Math.round(share * Math.max(heightOf(length) - viewport, 0));
}

/** Returns the first line that can be seen, counted from 0, at a place to which somebody scrolled. */
export function firstAt(offset: number, { length, rows, viewport }: Extent): number {
  const share = offset / Math.max(heightOf(length) - viewport, 1);
  return Math.round(share * Math.max(length - rows, 0));
}

export class Scrollbar {
  element: HTMLElement | undefined;
  /** Where it was put: an event that finds it there is no person's. */
  private expected = -1;

  place(first: number, extent: Extent): void {
    if (!this.element) return;
    this.element.scrollTop = offsetOf(first, extent);
    this.expected = this.element.scrollTop; // which the browser has rounded
  }

  /** Returns the first line of the place to which somebody dragged it; null where it was not dragged. */
  dragged(extent: Extent): number | null {
    const offset = this.element?.scrollTop ?? this.expected;
    if (Math.abs(offset - this.expected) < 2) return null;
    this.expected = offset;
    return firstAt(offset, extent);
  }
}
