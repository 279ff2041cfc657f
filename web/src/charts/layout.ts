/** How the charts of a page are arranged: kept for the user, and in the address, which wins. */
import { listOf, listText } from "../text/list";

export interface Layout {
  /** Ids of sections in their order. */
  readonly order: readonly string[];
  /** Ids of sections that show their heading alone. */
  readonly folded: readonly string[];
  /** Keys whose charts are in the top section. */
  readonly pinned: readonly string[];
  /** Keys that are not drawn with those of the same name. */
  readonly split: readonly string[];
}

export const PLAIN: Layout = { order: [], folded: [], pinned: [], split: [] };

const NAMES = { order: "sections", folded: "folded", pinned: "pinned", split: "split" } as const;
const PARTS = Object.keys(NAMES) as (keyof Layout)[];

/** Returns the arrangement that an address asks for; what it does not name is as kept. */
export function readLayout(query: URLSearchParams, kept: Layout): Layout {
  const found = PARTS.map((part) => {
    const text = query.get(NAMES[part]);
    return [part, text === null ? kept[part].filter((item) => typeof item === "string") : listOf(text)];
  });
  return Object.fromEntries(found) as unknown as Layout;
}

/** Returns what to change in the query of an address, so that it asks for these parts. */
export function layoutQuery(layout: Partial<Layout>): Record<string, string | null> {
  return Object.fromEntries(
    PARTS.filter((part) => part in layout).map((part) => [NAMES[part], listText(layout[part] ?? []) || null]),
  );
}
