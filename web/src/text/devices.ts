/** Where the ranks of a job are, in words. */

/** A device as a job or an attempt has it. An attempt does not know the hosts of its nodes. */
interface Held {
  readonly index: number | null;
  readonly node?: number;
  readonly host?: string | null;
}

interface Attempt {
  readonly number: number;
  readonly worker: string;
  readonly devices: readonly Held[];
}

/** A node of a job. Ranks are numbered over all nodes: each has one device. */
export interface NodeRanks {
  readonly node: number;
  readonly name: string;
  readonly ranks: readonly number[];
}

const MOST_NODES = 3;

/** Returns where an attempt runs or ran. The job has the devices of its newest one, with their hosts. */
export function attemptText(
  attempt: Attempt,
  job: { readonly attempt: number; readonly devices: readonly Held[] },
): string {
  const isKnown = attempt.number === job.attempt && job.devices.length > 0;
  return placeText(attempt.worker, isKnown ? job.devices : attempt.devices);
}

/** Returns where devices are: `box-a:0,1`, and in a pool `gpu: n1:0,1 n2:0,1`. */
export function placeText(worker: string, devices: readonly Held[]): string {
  const isPool = devices.some(({ node, host }) => node || host);
  return isPool ? `${worker}: ${nodesText(devices)}` : `${worker}${placeOf(null, devices)}`;
}

/** Returns on which nodes of a pool devices are: `n1:0,1 n2:0,1`, and of many nodes their number. */
export function nodesText(devices: readonly Held[]): string {
  const nodes = [...byNode(devices).values()];
  const hosts = nodes.map((held) => held[0]?.host ?? null);
  if (nodes.length > MOST_NODES || hosts.includes(null)) return `${nodes.length} nodes`;
  return nodes.map((held, at) => placeOf(hosts[at] ?? null, held)).join(" ");
}

/** Returns the nodes of a job that asks for several, by their numbers. `devices` are those of its ranks, if known. */
export function nodesOf(
  request: { readonly nodes: number; readonly devices_per_node: number },
  devices: readonly Held[],
): NodeRanks[] {
  const size = request.devices_per_node;
  return [...Array(request.nodes).keys()].map((node) => ({
    node,
    name: devices[node * size]?.host ?? `node ${node}`,
    ranks: [...Array(size).keys()].map((local) => node * size + local),
  }));
}

/** Returns `0–3` of ranks one after the other. */
export function rangeText(ranks: readonly number[]): string {
  return ranks.length > 1 ? `${ranks[0]}–${ranks.at(-1)}` : `${ranks[0] ?? ""}`;
}

function byNode(devices: readonly Held[]): Map<number, Held[]> {
  const nodes = new Map<number, Held[]>();
  for (const device of devices) nodes.set(device.node ?? 0, [...(nodes.get(device.node ?? 0) ?? []), device]);
  return nodes;
}

/** Returns `n1:0,1`, without what is not known. */
function placeOf(host: string | null, devices: readonly Held[]): string {
  const indices = devices.flatMap(({ index }) => (index === null ? [] : [index]));
  return `${host ?? ""}${indices.length > 0 ? `:${indices.join(",")}` : ""}`;
}
