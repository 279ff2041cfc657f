/** What a job asks for while it runs, in words. */
import type { QueueEntry } from "../api/wire";

export type Request = QueueEntry["resources"];

const KINDS = { cpu: "CPU slot", cuda: "GPU", auto: "device" } as const;

/** Returns how many devices, such as `2 GPUs of 24 GiB` and `2 nodes with 4 GPUs each`. */
export function devicesText(request: Request): string {
  const count = request.devices_per_node;
  const text = `${count} ${KINDS[request.device]}${count === 1 ? "" : "s"}`;
  const whole = request.min_memory_gb ? `${text} of ${request.min_memory_gb} GiB` : text;
  return request.nodes > 1 ? `${request.nodes} nodes with ${whole} each` : whole;
}

/** Returns the GPUs that will do, and what is asked of the host: `H100 or L40S, 8 CPUs, 32 GiB of memory`. */
export function furtherText({ gpu, cpus, memory_gb: memory }: Request): string {
  const parts = [
    gpu?.join(" or "),
    cpus ? `${cpus} CPU${cpus === 1 ? "" : "s"}` : null,
    memory ? `${memory} GiB of memory` : null,
  ];
  return parts.filter(Boolean).join(", ");
}
