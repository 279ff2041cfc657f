/** Jobs that the browser tests submit. */
import type { Service } from "./service.ts";

export interface Job {
  readonly id: string;
  readonly name: string;
  readonly state: string;
  readonly attempt: number;
}

/** A run of digits with the recipe for images: a second or two on a CPU. */
export function digits(name: string, training: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    name,
    trainer: "image-classification",
    config: { data: { source: "digits" }, training: { epochs: 2, ...training }, logging: { every_steps: 1 } },
    resources: { device: "cpu", devices_per_node: 1 },
  };
}

export async function submit(service: Service, spec: Record<string, unknown>): Promise<Job> {
  return service.ask<Job>("v1/jobs", { method: "POST", body: spec });
}

/** Waits until the job is in one of the states. Throws if it ends in another. */
export async function reach(service: Service, id: string, ...states: string[]): Promise<Job> {
  let version = 0;
  for (;;) {
    const job = await service.ask<Job & { version: number }>(
      `v1/jobs/${id}?wait=20&after_version=${version}`,
    );
    if (states.includes(job.state)) return job;
    if (["succeeded", "failed", "cancelled"].includes(job.state)) throw new Error(`${job.name} ${job.state}`);
    version = job.version;
  }
}
