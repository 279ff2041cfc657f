/** What quotas limit, in words, and how their values are written and read. */
import { ApiError } from "../../api/client";
import type { UserQuotaView } from "../../api/wire";
import { bytes, bytesOf } from "../../text/bytes";

export type Resource = UserQuotaView["uses"][number]["resource"];

export const RESOURCES: Readonly<Record<Resource, { readonly title: string; readonly note: string }>> = {
  devices: { title: "Devices", note: "held by running jobs" },
  running: { title: "Running", note: "running jobs" },
  queued: { title: "Waiting", note: "jobs that are queued or paused" },
  priority: { title: "Priority", note: "the highest of any job" },
  stored_bytes: { title: "Stored", note: "checkpoints, models, artifacts, metrics, logs, bundles and specs" },
  share: { title: "Share", note: "share of devices relative to others; default 100" },
};
export const NAMES = Object.keys(RESOURCES) as Resource[];

export const UNLIMITED = "unlimited";

/** Writes a limit or a use. */
export function valueText(resource: Resource, value: number | null | undefined): string {
  if (value === null || value === undefined) return UNLIMITED;
  return resource === "stored_bytes" ? bytes(value) : value.toLocaleString("en");
}

/** Writes a limit as it can be typed. */
export function typed(resource: Resource, value: number | null): string {
  if (value === null) return UNLIMITED;
  return resource === "stored_bytes" ? sizeText(value) : String(value);
}

/** Reads a limit that was typed: null is unlimited, `undefined` none of its own. Throws ApiError that says what is wrong. */
export function limitOf(resource: Resource, text: string): number | null | undefined {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return undefined;
  if (wanted === UNLIMITED && resource !== "share") return null;
  if (resource !== "stored_bytes" && /^-?\d+$/.test(wanted)) return Number(wanted);
  const stored = resource === "stored_bytes" ? bytesOf(wanted) : null;
  if (stored !== null) return stored;
  const size = resource === "stored_bytes" ? ", such as 20 GB" : "";
  throw new ApiError(
    0,
    "invalid",
    `${RESOURCES[resource].title}: a number${size}${resource === "share" ? "" : `, or ${UNLIMITED}`}.`,
  );
}

/** Writes bytes so that they are read again as the same number. */
function sizeText(value: number): string {
  for (const [unit, size] of [
    ["TB", 1e12],
    ["GB", 1e9],
    ["MB", 1e6],
    ["TiB", 2 ** 40],
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
  ] as const)
    if (value >= size && value % size === 0) return `${value / size} ${unit}`;
  return String(value);
}
