/** What one line of the queue says of a job, and what it says more under the pointer. */
import type { QueueEntry } from "../../api/wire";
import { duration } from "../../text/duration";
import { estimateText } from "../../text/estimate";
import { furtherText } from "../../text/request";
import { fitsNowhere } from "../../text/waiting";

/** Returns why a job waits in a few words. What it asks for stands beside them. */
export function shortReason(entry: QueueEntry, now: number): string {
  if (isDelayed(entry, now)) return `retries in ${delayText(entry, now)}`;
  if (fitsNowhere(entry.reason?.code)) return "no worker can run it";
  return (entry.reason?.message ?? "").replace(/^needs [^;]*; /, "");
}

/** Returns all that is known of why a job waits and until when, as sentences. */
export function wholeReason(entry: QueueEntry, now: number): string {
  const more = entry.reason?.message.startsWith("needs ") ? "" : furtherText(entry.resources);
  const starts = entry.estimate ? estimateText(entry.estimate, now) : "";
  const why = isDelayed(entry, now)
    ? `Attempts failed early; retries in ${delayText(entry, now)}`
    : (entry.reason?.message ?? "");
  return [`of ${entry.owner}`, more && `requests ${more}`, why, starts && `starts ${starts}`]
    .filter(Boolean)
    .map((text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?…]$/.test(text) ? "" : "."}`)
    .join("\n");
}

function isDelayed({ not_before }: QueueEntry, now: number): boolean {
  return Boolean(not_before && Date.parse(not_before) > now);
}

function delayText({ not_before }: QueueEntry, now: number): string {
  return duration((Date.parse(not_before ?? "") - now) / 1000);
}
