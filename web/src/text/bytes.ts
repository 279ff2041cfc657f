const PREFIXES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const;
const SIZE = /^(\d{1,15}) ?(?:(?:([kmgt])(i?))?b)?$/i;
const POWERS: Readonly<Record<string, number>> = { k: 1, m: 2, g: 3, t: 4 };

/** Formats bytes with a binary prefix, such as `1.4 GiB`. */
export function bytes(count: number): string {
  let left = count;
  let power = 0;
  while (Number(left.toFixed(1)) >= 1024 && power < PREFIXES.length - 1) {
    left /= 1024;
    power += 1;
  }
  return `${power > 0 ? left.toFixed(1) : count} ${PREFIXES[power]}`;
}

/** Reads a size: `200MB` is 200 million, `200MiB` are 200 times 2^20. Returns null for what is none. */
export function bytesOf(text: string): number | null {
  const found = SIZE.exec(text);
  if (found === null) return null;
  const [, number, prefix = "", binary = ""] = found;
  return Number(number) * (binary ? 1024 : 1000) ** (POWERS[prefix.toLowerCase()] ?? 0);
}
