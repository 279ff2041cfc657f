/** What a row of use shows: its bars by day, and hours in words. */
import type { UsageRow } from "../../api/wire";

export const DAYS = 30;
const DAY_MS = 86_400_000;

export interface Bars {
  /** A value for each of the days, those of UTC, up to today. */
  readonly values: readonly number[];
  /** What they show, for those who cannot see it. */
  readonly label: string;
}

/** Returns the hours of each day: of GPUs, and of CPU slots where the row has no GPU. */
export function barsOf({ owner, label, days, period }: UsageRow, now: number): Bars {
  const key = period.gpu_hours > 0 ? "gpu_hours" : "cpu_slot_hours";
  const hours = new Map(days.map((day) => [day.day, day[key]]));
  const names = Array.from({ length: DAYS }, (_, index) => dayOf(now - (DAYS - 1 - index) * DAY_MS));
  const values = names.map((name) => hours.get(name) ?? 0);
  const most = Math.max(...values);
  const whose = label === null ? owner : `${owner}, ${label}`;
  const peak = most > 0 ? `: at most ${hoursText(most)} on ${names[values.indexOf(most)]}` : "";
  return { values, label: `${key === "gpu_hours" ? "GPU" : "CPU-slot"}-hours of ${whose} by day${peak}` };
}

/** Formats `1,234`, `12`, `3.4` and `<0.1`. */
export function hoursText(hours: number): string {
  if (hours > 0 && hours < 0.1) return "<0.1";
  return hours < 9.95 ? String(Number(hours.toFixed(1))) : Math.round(hours).toLocaleString("en");
}

function dayOf(time: number): string {
  return new Date(time).toISOString().slice(0, 10);
}
