/** The order of groups of keys by their first part: train and val first, times, memory and system last. */
const FIRST = ["train", "val", "test"];
const LAST = ["time", "wait", "memory_gib", "system", "gpu"];

/** Returns where a group stands among others: a smaller number is before. */
export function rank(name: string): number {
  if (FIRST.includes(name)) return FIRST.indexOf(name);
  if (LAST.includes(name)) return 20 + LAST.indexOf(name);
  return name === "other" ? 15 : 10;
}

export function isLoss(key: string): boolean {
  return key === "loss" || key.endsWith("/loss");
}
