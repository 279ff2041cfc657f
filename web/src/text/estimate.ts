/** When a waiting job is expected to start, in words. Times are those of the reader's clock. */
import type { EstimateView } from "../api/wire";

/** With fewer outcomes of earlier estimates, an estimate is of low confidence. */
const ENOUGH = 20;
const FRESH_MS = 300_000;

/**
 * Returns `between 14:10 and 14:40; 79% of the last 200 estimates were right`, and how old the estimate is where
 * that is more than five minutes. Empty: nothing is expected yet.
 */
export function estimateText(estimate: EstimateView, now: number): string {
  const when = whenText(estimate, now);
  return when && `${when}${recordText(estimate)}${ageText(estimate, now)}`;
}

/** Returns `between 14:10 and 14:40`, `about 14:20`, or `after 14:40` of a job that is too far behind. */
export function whenText({ expected, low, high }: EstimateView, now: number): string {
  if (expected === null) return low === null ? "" : `after ${clockText(low, now)}`;
  if (low === null || high === null) return `about ${clockText(expected, now)}`;
  const [from, to] = rangeOf(low, high, now);
  return to === null ? `about ${from}` : `between ${from} and ${to}`;
}

/** Returns it for a column: `14:10–14:40`. */
export function shortWhenText(estimate: EstimateView, now: number): string {
  const { expected, low, high } = estimate;
  if (expected === null || low === null || high === null) return whenText(estimate, now);
  const [from, to] = rangeOf(low, high, now);
  return to === null ? `about ${from}` : `${from}–${to}`;
}

/** Returns `14:10`, and of another day `28 Nov 14:10`. */
export function clockText(time: string, now: number): string {
  const [day, today] = [dayText(time, now), dayText(new Date(now).toISOString(), now)];
  return day === today ? minuteText(time) : `${day} ${minuteText(time)}`;
}

/** Returns two times, the second without a day that the first has said; null if they are of one minute. */
function rangeOf(low: string, high: string, now: number): readonly [string, string | null] {
  const [from, to] = [clockText(low, now), clockText(high, now)];
  if (from === to) return [from, null];
  return [from, dayText(low, now) === dayText(high, now) ? minuteText(high) : to];
}

function recordText({ expected, held, of }: EstimateView): string {
  if (expected === null) return "";
  if (of < ENOUGH) return "; low confidence";
  return `; ${Math.round((100 * held) / of)}% of the last ${of} estimates were right`;
}

function ageText({ made_at }: EstimateView, now: number): string {
  const age = now - Date.parse(made_at);
  if (age <= FRESH_MS) return "";
  const minutes = Math.floor(age / 60_000);
  if (minutes < 120) return ` (estimated ${minutes} minutes ago)`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? ` (estimated ${hours} hours ago)` : ` (estimated ${Math.floor(hours / 24)} days ago)`;
}

function minuteText(time: string): string {
  return new Date(time).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}

function dayText(time: string, now: number): string {
  const date = new Date(time);
  const isThisYear = date.getFullYear() === new Date(now).getFullYear();
  return date.toLocaleDateString("en-GB", {
    day: "numeric",
    month: "short",
    ...(isThisYear ? {} : { year: "numeric" }),
  });
}
