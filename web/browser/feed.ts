/** Jobs that log what a test asks for, step by step, without any training. */
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { submit, type Job } from "./jobs.ts";
import type { Service } from "./service.ts";

const PROGRAM = `
import math, pathlib, sys, time
import torchyard

goal, kept = pathlib.Path(sys.argv[1]), int(sys.argv[2])
run = torchyard.init()
state = run.resume()
step = state["step"] if state else 0
while not run.should_stop():
    until, ends = goal.read_text().split()
    if step >= int(until):
        if ends == "ends":
            break
        time.sleep(0.05)
        continue
    step += 1
    wild = {400: math.nan, 600: 1e9}.get(step, 2 + math.sin(step / 50))
    zero = 0.0 if step % 100 == 0 else 10 ** (step % 7)
    run.log({"train/loss": 3 / step + step % 10, "train/wild": wild, "train/zero": zero}, step=step)
    print(f"line {step} of the feed", flush=True)
    if step == kept:
        run.save_checkpoint({"step": step}, step=step)
`;

export class Feeds {
  readonly folder = mkdtempSync(join(tmpdir(), "torchyard-feed-"));
  private readonly timers: ReturnType<typeof setInterval>[] = [];

  constructor() {
    writeFileSync(join(this.folder, "feed.py"), PROGRAM);
  }

  /** Submits a job that logs up to `until`, and saves its one checkpoint at the step `kept`. */
  async submit(service: Service, name: string, { until = 0, kept = 0, ends = false } = {}): Promise<Job> {
    this.goal(name, until, ends);
    return submit(service, {
      name,
      trainer: "script",
      config: {
        code: `file://${this.folder}`,
        entrypoint: "feed.py",
        args: [join(this.folder, name), String(kept)],
      },
      resources: { device: "cpu" },
    });
  }

  /** Lets the job log up to this step, and end there if `ends`. */
  goal(name: string, until: number, ends = false): void {
    const path = join(this.folder, name);
    writeFileSync(`${path}.new`, `${until} ${ends ? "ends" : "waits"}`);
    renameSync(`${path}.new`, path);
  }

  /** Has the job log four steps every 100 ms from this one on, until `stop`. */
  keepLogging(name: string, from: number): void {
    let step = from;
    this.timers.push(setInterval(() => this.goal(name, (step += 4)), 100));
  }

  stop(): void {
    for (const timer of this.timers) clearInterval(timer);
  }

  remove(): void {
    rmSync(this.folder, { recursive: true });
  }
}
