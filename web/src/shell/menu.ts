/** What a menu offers, and where its keys lead. */

export interface MenuItem {
  readonly name: string;
  readonly run: () => void;
  /** The key that does the same without the menu. */
  readonly keys?: string;
  /** Of what is on or off; undefined for what is done. */
  readonly checked?: boolean;
  readonly disabled?: boolean;
  /** What it would cost: said below the list. */
  readonly note?: string | null;
}

/** Returns the index of the item to which a key leads from the one at `at`; null for another key. */
export function itemOfKey(key: string, at: number, count: number): number | null {
  if (key === "ArrowDown") return (at + 1) % count;
  if (key === "ArrowUp") return (at - 1 + count) % count;
  if (key === "Home") return 0;
  return key === "End" ? count - 1 : null;
}
