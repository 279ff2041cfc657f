/** The rows of a worker's table of devices: one for each device, and one for a long stretch of free ones. */
import type { DeviceView, WorkerView } from "../../api/wire";

export type Holder = NonNullable<DeviceView["holder"]>;

/** A job across neighbouring devices. */
export interface DeviceJob {
  readonly jobId: string | null;
  readonly holder: Holder | null;
  readonly span: number;
}

export type DeviceRow =
  | {
      readonly kind: "held";
      readonly device: DeviceView;
      /** On its first device only. */ readonly job: DeviceJob | null;
    }
  | { readonly kind: "blocked"; readonly device: DeviceView }
  | { readonly kind: "free"; readonly first: number; readonly last: number; readonly count: number };

const LONG = 3;

/** Returns the rows of a worker, in the order of its devices' indices. */
export function deviceRows(worker: WorkerView): DeviceRow[] {
  const devices = [...worker.devices].sort((one, other) => one.index - other.index);
  const rows: DeviceRow[] = [];
  for (let at = 0; at < devices.length;) {
    const device = devices[at];
    if (!device) break;
    const alike = run(devices, at);
    const holder = keyOf(device);
    if (holder !== null) {
      const job = { jobId: device.job_id ?? null, holder: device.holder ?? null, span: alike.length };
      alike.forEach((held, index) =>
        rows.push({ kind: "held", device: held, job: index === 0 ? job : null }),
      );
    } else if (device.blocked !== null && device.blocked !== undefined)
      rows.push({ kind: "blocked", device });
    else if (alike.length >= LONG) rows.push(free(alike));
    else rows.push(...alike.map((item) => free([item])));
    at += alike.length;
  }
  return rows;
}

/** Returns how many devices are held, blocked and free. */
export function tally(workers: readonly WorkerView[]): { held: number; blocked: number; all: number } {
  const devices = workers.filter((worker) => worker.state !== "lost").flatMap((worker) => worker.devices);
  const held = devices.filter((device) => keyOf(device) !== null);
  const blocked = devices.filter((device) => keyOf(device) === null && device.blocked);
  return { held: held.length, blocked: blocked.length, all: devices.length };
}

function run(devices: readonly DeviceView[], from: number): DeviceView[] {
  const first = devices[from];
  if (!first) return [];
  const key = keyOf(first);
  const isBlocked = key === null && Boolean(first.blocked);
  const rest = devices.slice(from);
  const end = rest.findIndex(
    (device, index) => index > 0 && (isBlocked || keyOf(device) !== key || (key === null && device.blocked)),
  );
  return end < 0 ? rest : rest.slice(0, end);
}

/** Returns what two devices of one job have in common; of another user's private job that is only its holder. */
function keyOf(device: DeviceView): string | null {
  if (device.job_id) return device.job_id;
  return device.holder ? `${device.holder.owner} ${device.holder.since}` : null;
}

function free(devices: readonly DeviceView[]): DeviceRow {
  return {
    kind: "free",
    first: devices[0]?.index ?? 0,
    last: devices.at(-1)?.index ?? 0,
    count: devices.length,
  };
}
