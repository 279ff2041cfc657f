/** The rows of a worker's table of devices: one for each device, or one for each job, and one for a long stretch of free ones. */
import type { DeviceView, WorkerView } from "../../api/wire";
import { percent } from "../../text/percent";

export type Holder = NonNullable<DeviceView["holder"]>;

/** A job across neighbouring devices. */
export interface DeviceJob {
  readonly jobId: string | null;
  readonly holder: Holder | null;
  readonly span: number;
}

type Held = readonly [DeviceView, ...DeviceView[]];

export type DeviceRow =
  | {
      readonly kind: "held";
      /** One, or all neighbouring ones of the job. */ readonly devices: Held;
      /** On its first device only. */ readonly job: DeviceJob | null;
    }
  | { readonly kind: "blocked"; readonly device: DeviceView }
  | { readonly kind: "free"; readonly first: number; readonly last: number; readonly count: number };

/** The columns that some device has something for. Tables below one another have the same. */
export interface Columns {
  readonly use: boolean;
  readonly memory: boolean;
}

const LONG = 3;
/** So many devices have a row each. Of more, the neighbouring devices of a job share one. */
const MOST_ROWS = 16;

/** Says whether there are so many devices that a row for each is too much to look through. */
export function isLarge(workers: readonly WorkerView[]): boolean {
  return workers.reduce((sum, worker) => sum + worker.devices.length, 0) > MOST_ROWS;
}

export function columnsOf(workers: readonly WorkerView[]): Columns {
  const devices = workers.flatMap((worker) => worker.devices);
  return {
    use: devices.some(({ utilization }) => utilization !== null && utilization !== undefined),
    memory: devices.some((device) => device.memory_bytes),
  };
}

/** Returns the rows of a worker, in the order of its devices' indices. */
export function deviceRows(worker: WorkerView, isFolded = false): DeviceRow[] {
  const devices = [...worker.devices].sort((one, other) => one.index - other.index);
  const rows: DeviceRow[] = [];
  for (let at = 0; at < devices.length;) {
    const device = devices[at];
    if (!device) break;
    const alike = run(devices, at);
    const holder = keyOf(device);
    if (holder !== null) {
      const parts: Held[] = isFolded ? [[device, ...alike.slice(1)]] : alike.map((one): Held => [one]);
      const job = { jobId: device.job_id ?? null, holder: device.holder ?? null, span: parts.length };
      parts.forEach((held, index) =>
        rows.push({ kind: "held", devices: held, job: index === 0 ? job : null }),
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

/** Returns what tells a row of a worker from the others. */
export function keyOfRow(row: DeviceRow): string {
  if (row.kind === "free") return `free ${row.first}`;
  return row.kind === "held" ? row.devices[0].uuid : row.device.uuid;
}

/** Formats `device 3` and `devices 0–7`. */
export function nameOf(devices: readonly DeviceView[]): string {
  return `device${devices.length > 1 ? "s" : ""} ${rangeOf(devices[0]?.index, devices.at(-1)?.index)}`;
}

/** Formats `3` and `0–7`. */
export function rangeOf(first: number | undefined, last: number | undefined): string {
  return first === last ? String(first) : `${first}–${last}`;
}

/** Returns how much of the devices is used, from the least to the greatest. */
export function useText(devices: readonly DeviceView[]): string {
  const known = devices.flatMap(({ utilization }) => (typeof utilization === "number" ? [utilization] : []));
  if (known.length === 0) return percent(null);
  const [least, greatest] = [percent(Math.min(...known)), percent(Math.max(...known))];
  return least === greatest ? least : `${least.slice(0, -1)}–${greatest}`;
}

/** Returns the mean of histories of one length, at each moment of what is known of them. */
export function meanOf(histories: readonly (readonly (number | null)[])[]): (number | null)[] {
  const [first = []] = histories;
  return first.map((_, at) => {
    const known = histories.map((history) => history[at] ?? null).filter((value) => value !== null);
    return known.length === 0 ? null : known.reduce((sum, value) => sum + value) / known.length;
  });
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
