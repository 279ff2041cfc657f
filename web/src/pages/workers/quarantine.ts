/** What releases a device that no job can use, as docs/operating/gpus.md says. */
import type { DeviceView } from "../../api/wire";

/** Returns what releases the device; null of one that is offered, or that comes back by itself in some seconds. */
export function releaseOf({ blocked, returning }: DeviceView): string | null {
  if (!blocked || returning) return null;
  if (blocked.includes("in quarantine until"))
    return "Available again once it has answered for 10 minutes since, or once its worker is started again, which forgets faults.";
  if (blocked.includes("are still in use after"))
    return "Available again as soon as this memory is free: end the process that holds it, or start the worker again, which takes what is in use without a job for the usual amount.";
  if (/\bpid\b|process/.test(blocked))
    return "Available again as soon as this process has ended: no job of the service has started it.";
  if (blocked.includes("MIG")) return "Available again once MIG is off and the worker is started again.";
  if (blocked.includes("respond"))
    return "Available again once the driver answers for it: nvidia-smi on its host says more.";
  if (blocked.includes("disk space")) return "Available again once the disk of its host has free space.";
  return null;
}
