/** The use of a device over hours, as shapes: what ran there, how busy it was, and who held it. */
import type { HistoryView } from "../../api/wire";

export type Columns = HistoryView["devices"][number]["columns"];

/** How long the page looks back: the name in the address, seconds, and the most slots of an answer. */
export const SPANS = {
  "1h": { seconds: 3_600, slots: 360, words: "1 hour" },
  "24h": { seconds: 86_400, slots: 480, words: "24 hours" },
  "30d": { seconds: 30 * 86_400, slots: 720, words: "30 days" },
} as const;
export type Span = keyof typeof SPANS;

/** The times that a lane shows, in seconds since the epoch. */
export interface Window {
  readonly begins: number;
  readonly ends: number;
}

/** A job that held a device without a break. */
export interface Held {
  readonly jobId: string;
  readonly from: number;
  readonly to: number;
}

const MOST_APART = 1.5;

/** Returns which job held the device from when to when, the earliest first. */
export function heldBy({ time, job_id: jobs }: Columns, resolution: number): readonly Held[] {
  const found: { jobId: string; from: number; to: number }[] = [];
  for (const [row, begins] of time.entries()) {
    const jobId = jobs[row] ?? null;
    if (jobId === null) continue;
    const last = found.at(-1);
    if (last?.jobId === jobId && begins - last.to <= MOST_APART * resolution) last.to = begins + resolution;
    else found.push({ jobId, from: begins, to: begins + resolution });
  }
  return found;
}

/** Returns where a time lies in a lane of so many pixels. */
export function place(time: number, { begins, ends }: Window, width: number): number {
  return Math.round(((time - begins) / Math.max(1, ends - begins)) * width * 10) / 10;
}

/** Returns the path of values of 0…1, which is broken where nothing is known. `isFilled`: down to the ground. */
export function pathOf(
  times: readonly number[],
  shares: readonly (number | null | undefined)[],
  {
    window,
    width,
    height,
    resolution,
    isFilled,
  }: { window: Window; width: number; height: number; resolution: number; isFilled: boolean },
): string {
  let path = "";
  let end: number | null = null;
  const close = (): void => {
    if (end !== null && isFilled) path += `V${height}Z`;
    end = null;
  };
  for (const [row, begins] of times.entries()) {
    const share = shares[row] ?? null;
    if (share === null) {
      close();
      continue;
    }
    if (end !== null && begins - end > MOST_APART * resolution) close();
    const y = Math.round((1 - Math.max(0, Math.min(1, share))) * (height - 1) * 10) / 10 + 0.5;
    const x = place(Math.max(begins, window.begins), window, width);
    const to = place(Math.min(begins + resolution, window.ends), window, width);
    path += end === null ? (isFilled ? `M${x} ${height}V${y}H${to}` : `M${x} ${y}H${to}`) : `V${y}H${to}`;
    end = begins + resolution;
  }
  close();
  return path;
}

/** Returns the row of the slot in which a time lies; -1 if there is none. */
export function rowAt(times: readonly number[], time: number, resolution: number): number {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle] ?? 0) <= time) low = middle + 1;
    else high = middle;
  }
  const found = times[low - 1];
  return found !== undefined && time - found < resolution ? low - 1 : -1;
}

/** Returns round times of a window, a few of them, for its axis. */
export function ticks({ begins, ends }: Window, most: number): readonly number[] {
  const steps = [600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400, 2 * 86_400, 5 * 86_400];
  const step = steps.find((each) => (ends - begins) / each <= most) ?? 10 * 86_400;
  const offset = new Date(begins * 1000).getTimezoneOffset() * 60;
  const found: number[] = [];
  for (let at = Math.ceil((begins - offset) / step) * step + offset; at <= ends; at += step) found.push(at);
  return found;
}

/** Formats a time of an axis: the hour, or of a long window the day. */
export function tickText(time: number, { begins, ends }: Window): string {
  const at = new Date(time * 1000);
  if (ends - begins > 2 * 86_400) return at.toLocaleDateString("en", { month: "short", day: "numeric" });
  return at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}

/** Formats the time of the crosshair. */
export function timeText(time: number, { begins, ends }: Window): string {
  const day = ends - begins > 3 * 3_600 ? `${tickText(time, { begins: 0, ends: 1e9 })} ` : "";
  return `${day}${new Date(time * 1000).toLocaleTimeString("en-GB")}`;
}
