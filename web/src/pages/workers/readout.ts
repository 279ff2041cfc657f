/** How a device is or was used, in words. */
import type { DeviceView } from "../../api/wire";
import { bytes } from "../../text/bytes";
import { percent } from "../../text/percent";
import { rowAt, type Columns } from "./lanes";

export interface Readout {
  readonly figures: string;
  /** The name of the job that holds it; empty for none. */
  readonly job: string;
}

type Known = number | null | undefined;

/** Says how the device is used now. */
export function usedNow(device: DeviceView): Readout {
  const { holder } = device;
  const job = holder ? (holder.name ?? `a private job of ${holder.owner}`) : "";
  return words(device.utilization, device.memory_used_bytes, device.power_watts, job);
}

/** Says how the device was used at a time. `names`: of jobs by their ids. */
export function usedAt(
  time: number,
  {
    columns,
    resolution,
    names,
  }: { columns: Columns; resolution: number; names: ReadonlyMap<string, string> },
): Readout {
  const row = rowAt(columns.time, time, resolution);
  if (row < 0) return { figures: "no data", job: "" };
  const jobId = columns.job_id[row] ?? null;
  const job = jobId === null ? "" : (names.get(jobId) ?? jobId);
  return words(columns.utilization[row], columns.memory_used[row], columns.power_watts[row], job);
}

function words(used: Known, memory: Known, power: Known, job: string): Readout {
  const parts = [
    used === null || used === undefined ? "" : percent(used),
    memory === null || memory === undefined ? "" : bytes(memory),
    power === null || power === undefined ? "" : `${Math.round(power)} W`,
  ];
  return { figures: parts.filter(Boolean).join("  ") || (job ? "" : "free"), job };
}
