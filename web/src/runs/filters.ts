/** Jobs that an address finds, as Jobs and Compare read it. */
import type { Query } from "../api/client";

/** Keys of an address that say which jobs there are; others say how they are shown. */
const FILTERS = [
  ...["sweep", "label", "q", "state", "owner", "trainer", "starred", "archived", "schedule"],
] as const;

/** Returns what the service is asked for; null where the address has no filter. */
export function filterOf(query: URLSearchParams): Query | null {
  const found: Record<string, readonly string[]> = {};
  for (const name of FILTERS) {
    const values = query.getAll(name).filter(Boolean);
    if (values.length > 0)
      found[name] = name === "state" ? values.flatMap((text) => text.split(",")) : values;
  }
  return Object.keys(found).length > 0 ? found : null;
}

/** Returns the filter in words, such as `named like unet, with state failed`; empty without one. */
export function filterText({ q, ...others }: Query): string {
  const rest = Object.entries(others).map(([name, values]) => `${name} ${[values].flat().join(", ")}`);
  const parts = [
    q === undefined ? "" : `named like ${[q].flat().join(", ")}`,
    rest.length === 0 ? "" : `with ${rest.join(", ")}`,
  ];
  return parts.filter(Boolean).join(", ");
}

/** Returns the part of an address that says which jobs there are. */
export function addressOf(query: URLSearchParams): Readonly<Record<string, string>> {
  return Object.fromEntries(FILTERS.flatMap((name) => [...query.getAll(name)].map((value) => [name, value])));
}
