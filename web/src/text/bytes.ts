const PREFIXES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const;

/** Formats bytes with a binary prefix, such as `1.4 GiB`. */
export function bytes(count: number): string {
  let left = count;
  let power = 0;
  while (Math.round(left) >= 1024 && power < PREFIXES.length - 1) {
    left /= 1024;
    power += 1;
  }
  return `${left < 10 && power > 0 ? left.toFixed(1) : Math.round(left)} ${PREFIXES[power]}`;
}
