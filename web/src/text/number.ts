const MOST_WHOLE = 1e15;

/** Formats four digits, and from 1,000 on the whole number. NaN and infinity have a sign; nothing is a dash. */
export function number(value: number | string | null | undefined): string {
  if (typeof value === "string") return value.replace("Infinity", "∞");
  if (typeof value !== "number") return "—"; // it may be of a key such as `constructor`, that no object lacks
  if (!Number.isFinite(value)) return String(value).replace("Infinity", "∞");
  const size = Math.abs(Number(value.toPrecision(4)));
  return size >= 1000 && size < MOST_WHOLE ? Number(value.toFixed(0)).toLocaleString("en") : digits(value);
}

/** Formats a number that was set as it can be typed: with up to four digits, and from 1,000 on the whole number. */
export function setting(value: number): string {
  const size = Math.abs(Number(value.toPrecision(4)));
  return size >= 1000 && size < MOST_WHOLE ? value.toFixed(0) : digits(value);
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

function digits(value: number): string {
  const short = Number(value.toPrecision(4));
  const size = Math.abs(short);
  if (short === 0 || (size >= 1e-4 && size < MOST_WHOLE)) return String(short);
  return short.toExponential().replace("e+", "e");
}
