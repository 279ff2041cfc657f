/** What there is for fields to name: bundles, folders, pools, environments and GPUs that there are, and the names of one's secrets. */
import { failureOf, get } from "../../api/client";
import type { BundleView, Page, SecretView, WorkerView } from "../../api/wire";
import type { Field } from "../../specs/schema";
import { may } from "../../shell/rights";

export interface Suggestion {
  readonly value: string;
  readonly note: string;
}

export class Offered {
  secrets = $state.raw<readonly string[]>([]);
  /** Those that are complete, the newest first. */
  bundles = $state.raw<readonly BundleView[]>([]);
  private pools = $state.raw<readonly Suggestion[]>([]);
  private workers = $state.raw<readonly WorkerView[]>([]);
  /** Each name once: where several workers offer it, what the first says of it. */
  private readonly environments = $derived.by<readonly Suggestion[]>(() => {
    const all = this.workers.flatMap((worker) => worker.starts?.environments ?? []);
    return all
      .filter((each, index) => !each.obstacle && all.findIndex(({ name }) => name === each.name) === index)
      .map(({ name, python, torch }) => ({
        value: name,
        note: `Python ${python}, ${torch ? `torch ${torch}` : "no torch"}`,
      }));
  });

  /** The `file://` URLs of the folders of workers' hosts below which data and code may be, each once. */
  readonly folders = $derived.by<readonly string[]>(() => {
    const paths = this.workers.flatMap((worker) => worker.starts?.folders ?? []);
    return [...new Set(paths)].map((path) => `file://${encodeURI(path)}`);
  });

  /** Reads what the account may see. What cannot be read is not offered, and can be typed all the same. */
  async read(): Promise<void> {
    const [bundles, workers, secrets] = await Promise.all([
      page<BundleView>("v1/bundles"),
      may("cluster:read") ? page<WorkerView>("v1/workers") : [],
      may("secrets") ? page<SecretView>("v1/secrets") : [],
    ]);
    this.bundles = bundles.filter((bundle) => bundle.state === "complete");
    this.workers = workers;
    this.pools = workers
      .filter((worker) => worker.pool)
      .map((worker) => ({ value: worker.name, note: `${worker.pool?.nodes.count ?? 0} nodes` }));
    this.secrets = secrets.map((secret) => secret.name);
  }

  /** Returns what a field of a job spec offers as one types. Reactive. */
  of(field: Field): readonly Suggestion[] {
    if (field.key === "config.python") return this.environments;
    return field.key === "resources.pool" ? this.pools : [];
  }

  /** Says what there is for a field to ask for, or how it comes about; nothing if that is not known. Reactive. */
  note(key: string): string {
    if (key === "after") return "such as `[{job: NAME, on: succeeded}]`";
    if (["config.code", "config.data.source", "config.model.weights"].includes(key))
      return "drop a folder here to upload it";
    if (key === "resources.devices_per_node") {
      const most = Math.max(0, ...this.workers.map((worker) => worker.devices.length));
      return most > 0 ? `the largest worker has ${most}` : "";
    }
    if (key !== "resources.gpu") return "";
    const gpus = this.workers.flatMap((worker) => worker.devices.filter((device) => device.kind === "cuda"));
    const names = [...new Set(gpus.map((device) => device.name))];
    return names.length > 0 ? `there are ${names.join(", ")}` : "";
  }
}

async function page<T>(path: string): Promise<readonly T[]> {
  try {
    return (await get<Page<T>>(path, { limit: 100 })).data;
  } catch (error) {
    failureOf(error); // the form can do without
    return [];
  }
}
