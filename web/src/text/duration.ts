const UNITS: readonly (readonly [string, number])[] = [
  ["d", 86_400],
  ["h", 3600],
  ["m", 60],
  ["s", 1],
];

/** Formats seconds as its two largest units, such as `1h 12m`, `14m`, `9s`. */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return "—";
  let left = Math.max(0, Math.round(seconds));
  const first = UNITS.findIndex(([, size]) => left >= size);
  if (first < 0) return "0s";
  const parts: string[] = [];
  for (const [name, size] of UNITS.slice(first, first + 2)) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count > 0) parts.push(`${count}${name}`);
  }
  return parts.join(" ");
}

/** Returns the seconds of a duration of a spec, such as `10m`; null of anything else. */
export function secondsOf(value: unknown): number | null {
  const found = typeof value === "string" ? /^(\d+)([smhd])$/.exec(value) : null;
  const size = UNITS.find(([name]) => name === found?.[2])?.[1];
  return size === undefined ? null : Number(found?.[1]) * size;
}
