/** Keys of media by their first part: those of validation first, as they are looked at most. */
import type { MediaKey } from "../api/wire";
import { natural } from "../text/natural";
import { spanOf } from "./spans";

export interface Group {
  readonly name: string;
  readonly entries: readonly MediaKey[];
}

const FIRST = ["val", "test", "train"];
const OTHER = "other";

/** Groups the keys that contain the text of the filter. Sorts them naturally (`layer2` before `layer10`), those of a whole row last. */
export function grouped(keys: readonly MediaKey[], filter = ""): readonly Group[] {
  const wanted = filter.trim().toLowerCase();
  const groups = new Map<string, MediaKey[]>();
  for (const entry of keys) {
    if (!entry.key.toLowerCase().includes(wanted)) continue;
    const name = entry.key.includes("/") ? entry.key.slice(0, entry.key.indexOf("/")) : OTHER;
    const members = groups.get(name);
    if (members) members.push(entry);
    else groups.set(name, [entry]);
  }
  return [...groups]
    .map(([name, entries]) => ({
      name,
      entries: entries.sort((a, b) => Number(isWide(a)) - Number(isWide(b)) || natural(a.key, b.key)),
    }))
    .sort((a, b) => rank(a.name) - rank(b.name) || natural(a.name, b.name));
}

/** Returns the first groups, with so many entries in all. */
export function upTo(most: number, groups: readonly Group[]): readonly Group[] {
  let left = most;
  const found: Group[] = [];
  for (const { name, entries } of groups) {
    if (left <= 0) break;
    found.push({ name, entries: entries.slice(0, left) });
    left -= entries.length;
  }
  return found;
}

function isWide(entry: MediaKey): boolean {
  return spanOf(entry, null) === "all";
}

function rank(name: string): number {
  if (name === OTHER) return FIRST.length + 1;
  return FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length;
}
