/** The page's memory while hours of events pass: the service's stream is replaced, and all else comes from the service. */
import { once } from "node:events";
import { createServer, request, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { CDPSession, Page } from "playwright-core";

export interface Replay {
  readonly hours: number;
  /** Seconds of events that pass in a second. */
  readonly speed: number;
  readonly jobs: readonly string[];
  readonly keys: readonly string[];
}

/** Bytes after a forced collection. */
export interface Heap {
  readonly hour: number;
  readonly script: number;
  /** What typed arrays hold outside the script's heap. */
  readonly buffers: number;
  /** The document's own objects. */
  readonly document: number;
}

const TICK_MS = 250;
const HOUR_S = 3600;
const SETTLED_MS = 2_000;
/** Beyond what the jobs themselves have logged. */
const FIRST_STEP = 1_000_000;

/** Answers `v1/stream` itself, in the service's format, as fast as the order says; forwards everything else. */
export class Stream {
  private readonly service: string;
  private readonly replay: Replay;
  /** The page's connections, each with the jobs that it watches. */
  private readonly clients = new Map<ServerResponse, readonly string[]>();
  private readonly positions = new Map<string, number>();
  private readonly server = createServer((asked, answer) => this.answer(asked, answer));
  private elapsed = 0;

  constructor(service: string, replay: Replay) {
    this.service = service;
    this.replay = replay;
  }

  async start(): Promise<string> {
    await new Promise<void>((ready) => this.server.listen(0, "127.0.0.1", ready));
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/`;
  }

  stop(): void {
    this.server.closeAllConnections();
    this.server.close();
  }

  /** Sends events of one second each until the hour, at the replay's speed. Waits where the page does not read. */
  async playUntil(hour: number): Promise<void> {
    const share = (this.replay.speed * TICK_MS) / 1000;
    while (this.elapsed < hour * HOUR_S) {
      const due = Date.now() + TICK_MS;
      const seconds = Math.min(share, hour * HOUR_S - this.elapsed);
      for (const job of this.replay.jobs) await this.send(job, this.items(job, seconds));
      this.elapsed += seconds;
      await new Promise((wait) => setTimeout(wait, Math.max(0, due - Date.now())));
    }
  }

  private answer(asked: IncomingMessage, answer: ServerResponse): void {
    const target = new URL(asked.url ?? "/", this.service);
    if (target.pathname === "/v1/stream") this.open(target, answer);
    else this.forward(target, asked, answer);
  }

  private open(target: URL, answer: ServerResponse): void {
    for (const part of (target.searchParams.get("after") ?? "").split(",")) {
      const [job = "", position = "0"] = part.split(":");
      this.positions.set(job, Math.max(Number(position), this.positions.get(job) ?? 0));
    }
    answer.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
    this.clients.set(answer, target.searchParams.getAll("job"));
    answer.once("close", () => this.clients.delete(answer));
    void this.write(answer, "ready", { after: "" });
  }

  private forward(target: URL, asked: IncomingMessage, answer: ServerResponse): void {
    // The service takes requests that change something from its own origin alone.
    const headers = { ...asked.headers, host: target.host };
    if (asked.headers.origin) headers.origin = target.origin;
    const sent = request(target, { method: asked.method, headers }, (found) => {
      answer.writeHead(found.statusCode ?? 502, found.headers);
      found.pipe(answer);
    });
    sent.on("error", () => answer.destroy());
    asked.pipe(sent);
  }

  private items(job: string, seconds: number): Record<string, unknown> {
    const first = Math.round(this.elapsed);
    const count = Math.round(this.elapsed + seconds) - first;
    const place = Array.from({ length: count }, (_, i) => first + i);
    const start = Date.now() / 1000;
    const points = (key: number): Record<string, unknown> => ({
      step: place.map((second) => FIRST_STEP + second),
      value: place.map((second) => Math.exp(-second / 9_000) + 0.05 * Math.sin((second + key) * 12.9898)),
      time: place.map((second) => start + second),
      attempt: place.map(() => 1),
    });
    const position = (this.positions.get(job) ?? 0) + count * (this.replay.keys.length + 1);
    this.positions.set(job, position);
    const time = new Date().toISOString();
    return {
      job_id: job,
      position,
      metrics: Object.fromEntries(this.replay.keys.map((key, i) => [key, points(i)])),
      logs: place.map((line) => ({
        line,
        time,
        attempt: 1,
        rank: 0,
        stream: "stdout",
        text: `second ${line}`,
      })),
      events: [],
    };
  }

  private async send(job: string, items: Record<string, unknown>): Promise<void> {
    if (this.clients.size === 0) throw new Error("the page has no stream");
    for (const [client, jobs] of this.clients)
      if (jobs.includes(job)) await this.write(client, "items", items);
  }

  private async write(client: ServerResponse, name: string, data: unknown): Promise<void> {
    const after = [...this.positions].map(([job, position]) => `${job}:${position}`).join(",");
    if (!client.write(`event: ${name}\nid: ${after}\ndata: ${JSON.stringify(data)}\n\n`))
      await Promise.race([once(client, "drain"), once(client, "close")]);
  }
}

/** Returns the page's heap at the start, after the first hour, and after the last. */
export async function heaps(page: Page, stream: Stream, replay: Replay): Promise<Heap[]> {
  const session = await page.context().newCDPSession(page);
  const found: Heap[] = [];
  for (const hour of [0, 1, replay.hours]) {
    await stream.playUntil(hour);
    if (hour > 0)
      await page
        .locator(`[role=img][aria-label*="step ${lastStep(hour)}"]`)
        .first()
        .waitFor();
    await page.waitForTimeout(SETTLED_MS);
    found.push({ hour, ...(await collected(session)) });
  }
  return found;
}

/** Returns the newest step at the end of the hour, as a chart's summary has it. */
function lastStep(hour: number): string {
  return (FIRST_STEP + hour * HOUR_S - 1).toLocaleString("en");
}

async function collected(session: CDPSession): Promise<Omit<Heap, "hour">> {
  await session.send("HeapProfiler.enable");
  for (let i = 0; i < 3; i++) await session.send("HeapProfiler.collectGarbage");
  const usage = await session.send("Runtime.getHeapUsage");
  return {
    script: usage.usedSize,
    buffers: usage.backingStorageSize,
    document: usage.embedderHeapUsedSize,
  };
}
