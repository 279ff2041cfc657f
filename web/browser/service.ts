/** Starts a real service for a browser test, and asks it as the command line would. */
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const PROGRAM = fileURLToPath(new URL("../../.venv/bin/torchyard", import.meta.url));
const START_MS = 300_000; // finds what hangs, not what is slow beside other work

export interface Facts {
  readonly url: string;
  readonly token: string;
  readonly processes: Readonly<Record<string, number>>;
}

export class Service {
  readonly folder: string;
  private readonly child: ChildProcess | undefined;

  private constructor(folder: string, child?: ChildProcess) {
    this.child = child;
    this.folder = folder;
  }

  /** Uses the service that runs with data in `folder`, which does not end with the test. */
  static runningIn(folder: string): Service {
    return new Service(folder);
  }

  /** Starts `torchyard up` with data of its own on a free port. Jobs may name code below the folder `allow`. */
  static async start({
    slots = 2,
    allow,
    settings = {},
  }: { slots?: number; allow?: string; settings?: Record<string, string> } = {}): Promise<Service> {
    const folder = mkdtempSync(join(tmpdir(), "torchyard-browser-"));
    const argv = ["up", "--data-dir", folder, "--port", "0", "--cpu-slots", String(slots)];
    if (allow !== undefined) argv.push("--allow-path", allow);
    const child = spawn(PROGRAM, argv, {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, ...settings },
    });
    const service = new Service(folder, child);
    try {
      await ready(child);
    } catch (error) {
      await service.stop();
      throw error;
    }
    return service;
  }

  /** What `up` says of itself now: the processes' ids change when it starts one again. */
  get facts(): Facts {
    return JSON.parse(readFileSync(join(this.folder, "server.json"), "utf8")) as Facts;
  }

  get url(): string {
    return this.facts.url;
  }

  /** Sends a request with the administrator's token, or another one. */
  async ask<T>(
    path: string,
    {
      method = "GET",
      body,
      token = this.facts.token,
    }: { method?: string; body?: unknown; token?: string } = {},
  ): Promise<T> {
    const answer = await fetch(new URL(path, this.url), {
      method,
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    return (answer.status === 204 ? undefined : await answer.json()) as T;
  }

  /** Ends the service with its jobs, and removes its data. */
  async stop(): Promise<void> {
    const { child } = this;
    if (child === undefined) return;
    if (child.exitCode === null && child.signalCode === null) {
      const ended = new Promise<void>((done) => child.once("exit", () => done()));
      child.kill("SIGINT");
      await ended;
    }
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Waits until it says that it can be used. Throws if it ends before, or takes too long. */
async function ready(child: ChildProcess): Promise<void> {
  let said = "";
  child.stderr?.on("data", (text: Buffer) => (said += text.toString()));
  await new Promise<void>((done, failed) => {
    child.stdout?.on("data", (text: Buffer) => {
      if (text.includes("token")) done();
    });
    child.once("exit", () => failed(new Error(`the service ended: ${said}`)));
    setTimeout(() => failed(new Error(`the service did not start: ${said}`)), START_MS).unref();
  });
}
