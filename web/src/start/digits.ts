/** The example of the README: a small CNN on handwritten digits, which come with the service. */
import { get, post } from "../api/client";
import type { JobView, Page, WorkerView } from "../api/wire";
import { may } from "../shell/rights";

const DEVICES = 2;

export function digits(devices: number) {
  return {
    trainer: "image-classification",
    name: "digits",
    resources: { devices_per_node: devices },
    config: { data: { source: "digits" }, training: { epochs: 5 } },
  } as const;
}

/** Submits the example, with one device where no worker has two. Returns the job's id. Throws ApiError. */
export async function submitDigits(): Promise<string> {
  const workers = may("cluster:read") ? (await get<Page<WorkerView>>("v1/workers", { limit: 200 })).data : [];
  const most = Math.max(0, ...workers.map(({ devices }) => devices.length));
  return (await post<JobView>("v1/jobs", digits(most === 1 ? 1 : DEVICES))).id;
}
