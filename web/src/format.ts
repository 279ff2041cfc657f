/** Numbers, sizes and times as the page writes them. Each is as short as it can be and still be read. */
import type { Cell } from "./api/wire";

const NOTHING = "–";
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"] as const;

/** Returns `1234567` as "1.235e6", `0.71349` as "0.7135": four significant digits. */
export function number(value: Cell | undefined, digits = 4): string {
  if (value === null || value === undefined) return NOTHING;
  if (typeof value === "string") return value === "NaN" ? value : value.replace("Infinity", "∞");
  if (!Number.isFinite(value)) return number(String(value) as Cell);
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e7) return count(value);
  if (size >= 1e5 || size < 1e-3)
    return value
      .toExponential(digits - 1)
      .replace(/\.?0+e/, "e")
      .replace("e+", "e");
  return value.toPrecision(digits);
}

/** Returns `1234567` as "1,234,567". */
export function count(value: number): string {
  return value.toLocaleString("en");
}

/** Returns a share of 0…1 as "36%". */
export function percent(share: number | null | undefined): string {
  return share === null || share === undefined ? NOTHING : `${Math.round(share * 100)}%`;
}

/** Returns `66035122176` as "61.5 GiB". */
export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return NOTHING;
  const power = value < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log2(value) / 10));
  const scaled = value / 1024 ** power;
  return `${power === 0 || scaled >= 100 ? Math.round(scaled) : scaled.toFixed(1)} ${UNITS[power]}`;
}

/** Returns seconds as their two largest units: "4s", "1m 12s", "3h 05m", "2d 4h". */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NOTHING;
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole}s`;
  const [minutes, hours, days] = [
    Math.floor(whole / 60),
    Math.floor(whole / 3600),
    Math.floor(whole / 86400),
  ];
  if (hours < 1) return `${minutes}m ${two(whole % 60)}s`;
  if (days < 1) return `${hours}h ${two(minutes % 60)}m`;
  return `${days}d ${hours % 24}h`;
}

/** Returns seconds in their largest unit: "4s", "14m", "3h", "2d". For columns of ages. */
export function age(seconds: number): string {
  return duration(seconds).split(" ")[0] ?? NOTHING;
}

/** Returns the seconds between two times (ISO text), or from the first until `now` (ms). */
export function elapsed(
  from: string | null | undefined,
  to: string | null | undefined,
  now: number,
): number | null {
  if (!from) return null;
  return Math.max(0, ((to ? Date.parse(to) : now) - Date.parse(from)) / 1000);
}

/** Returns a moment as the reader's clock has it: "12:03:07" today, else "21 Nov 12:03". */
export function moment(time: string | number, now: number): string {
  const at = new Date(time);
  const clock = at.toLocaleTimeString("en-GB");
  if (at.toDateString() === new Date(now).toDateString()) return clock;
  return `${at.getDate()} ${at.toLocaleString("en", { month: "short" })} ${clock.slice(0, 5)}`;
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}
