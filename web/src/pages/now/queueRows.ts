/** What one line of the queue says of a job, and what it says more under the pointer. */
import type { QueueEntry, WorkerView } from "../../api/wire";
import { placeText } from "../../text/devices";
import { duration } from "../../text/duration";
import { estimateText } from "../../text/estimate";
import { furtherText } from "../../text/request";
import { fitsNowhere } from "../../text/waiting";

/** Returns why a job waits in a few words: whose devices it waits for, where that is one job's. */
export function shortReason(entry: QueueEntry, workers: readonly WorkerView[], now: number): string {
  if (isDelayed(entry, now)) return `retries in ${delayText(entry, now)}`;
  if (fitsNowhere(entry.reason?.code)) return "no worker can run it";
  return holderText(entry, workers) ?? (entry.reason?.message ?? "").replace(/^needs [^;]*; /, "");
}

/** Returns all that is known of why a job waits and until when, as sentences. */
export function wholeReason(entry: QueueEntry, now: number): string {
  const more = entry.reason?.message.startsWith("needs ") ? "" : furtherText(entry.resources);
  const starts = entry.estimate ? estimateText(entry.estimate, now) : "";
  const why = isDelayed(entry, now)
    ? `Attempts failed early; retries in ${delayText(entry, now)}`
    : (entry.reason?.message ?? "");
  return [`of ${entry.owner}`, more && `asks for ${more}`, why, starts && `starts ${starts}`]
    .filter(Boolean)
    .map((text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?…]$/.test(text) ? "" : "."}`)
    .join("\n");
}

/** Returns `waits for bob-hang (vm:1)`; null where it is not the devices of one worker that it waits for. */
function holderText(entry: QueueEntry, workers: readonly WorkerView[]): string | null {
  const { reason, resources, job_id: id } = entry;
  if (reason?.code !== "devices_busy" && reason?.code !== "reserved") return null;
  const { device: kind, devices_per_node: count, gpu, min_memory_gb, cpus, memory_gb } = resources;
  if (resources.nodes > 1 || gpu || min_memory_gb || cpus || memory_gb) return null;
  const isFor = ({ kept }: WorkerView): boolean => kept.some((keep) => keep.job_id === id);
  const large = workers
    .filter((worker) => worker.state === "ready" && (reason.code !== "reserved" || isFor(worker)))
    .map((worker) => ({
      worker,
      devices: worker.devices.filter((device) => kind === "auto" || device.kind === kind),
    }))
    .filter(({ devices }) => devices.length >= count);
  const [only] = large;
  if (!only || large.length > 1) return null;
  const held = only.devices.filter(({ holder }) => holder);
  const holders = new Set(held.map(({ job_id, holder }) => job_id ?? `${holder?.owner} ${holder?.since}`));
  if (holders.size === 0 || only.devices.length - held.length >= count) return null;
  if (holders.size > 1) return `waits for ${holders.size} jobs (${only.worker.name})`;
  const [first] = held;
  const name = first?.holder?.name ?? `a job of ${first?.holder?.owner ?? ""}`;
  return `waits for ${name} (${placeText(only.worker.name, held)})`;
}

function isDelayed({ not_before }: QueueEntry, now: number): boolean {
  return Boolean(not_before && Date.parse(not_before) > now);
}

function delayText({ not_before }: QueueEntry, now: number): string {
  return duration((Date.parse(not_before ?? "") - now) / 1000);
}
