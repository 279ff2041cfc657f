/** Keys by their first part: train and val first, times, memory and system last. In each, the losses come first. */
export interface Group {
  readonly name: string;
  readonly keys: readonly string[];
}

const FIRST = ["train", "val", "test"];
const LAST = ["time", "wait", "memory_gib", "system", "gpu"];
/** Numbers in names count as numbers. */
export const natural = new Intl.Collator("en", { numeric: true });

export function grouped(keys: readonly string[], filter = ""): readonly Group[] {
  const wanted = filter.trim().toLowerCase();
  const groups = new Map<string, string[]>();
  for (const key of [...new Set(keys)].sort(
    (a, b) => Number(isLoss(b)) - Number(isLoss(a)) || natural.compare(a, b),
  )) {
    if (!key.toLowerCase().includes(wanted)) continue;
    const name = key.includes("/") ? key.slice(0, key.indexOf("/")) : "other";
    groups.set(name, [...(groups.get(name) ?? []), key]);
  }
  return [...groups]
    .map(([name, members]) => ({ name, keys: members }))
    .sort((a, b) => rank(a.name) - rank(b.name) || natural.compare(a.name, b.name));
}

/** Returns where a group stands among others: a smaller number is before. */
export function rank(name: string): number {
  if (FIRST.includes(name)) return FIRST.indexOf(name);
  if (LAST.includes(name)) return 20 + LAST.indexOf(name);
  return name === "other" ? 15 : 10;
}

export function isLoss(key: string): boolean {
  return key === "loss" || key.endsWith("/loss");
}
