/** What releases a device that no job can use, as docs/operating/gpus.md says. */
import type { DeviceView } from "../../api/wire";

/** Returns what releases the device; null of one that is offered, or that comes back by itself in some seconds. */
export function releaseOf({ blocked, returning }: DeviceView): string | null {
  if (!blocked || returning) return null;
  if (blocked.includes("in quarantine until"))
    return "Available after 10 minutes without a fault, or a restart.";
  if (blocked.includes("are still in use after"))
    return "Available when this memory is free. End the process that holds it, or restart the worker.";
  if (/\bpid\b|process/.test(blocked)) return "Available when this process ends. No job started it.";
  if (blocked.includes("MIG")) return "Available after MIG is off and the worker restarts.";
  if (blocked.includes("respond")) return "Available when its driver answers. Check nvidia-smi on its host.";
  if (blocked.includes("disk space")) return "Available when its host has free disk space.";
  return null;
}
