/** Formats a metric with up to five digits. "NaN" and "Infinity" stay as they are; nothing is a dash. */
export function number(value: number | string | null | undefined): string {
  if (typeof value === "string") return value.replace("Infinity", "∞");
  if (typeof value !== "number") return "—"; // it may be of a key such as `constructor`, that no object lacks
  if (!Number.isFinite(value)) return String(value).replace("Infinity", "∞");
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value === 0 ? "0" : value.toExponential(2);
  return value.toPrecision(4);
}

/** Formats a number that was set with up to four digits, and a whole one with all of its own. */
export function setting(value: number): string {
  return String(Number.isInteger(value) ? value : Number(value.toPrecision(4)));
}

/** Formats three digits and a decimal prefix, such as `1.23 M`. */
export function scaled(value: number): string {
  const prefixes = ["", " k", " M", " G", " T", " P"];
  let left = Number(value.toPrecision(3));
  let power = 0;
  while (Math.abs(left) >= 1000 && power < prefixes.length - 1) {
    left /= 1000;
    power += 1;
  }
  return `${Number(left.toPrecision(3))}${prefixes[power] ?? ""}`;
}
