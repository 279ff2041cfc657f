/** Takes pictures of every page of a real service, in both themes and two widths: `make screenshots`. */
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { launch } from "./chromium.ts";
import { digits, reach, submit, type Job } from "./jobs.ts";
import { leave, visit } from "./page.ts";
import { Service } from "./service.ts";

const FOLDER = fileURLToPath(new URL("../../dist/screenshots/", import.meta.url));
const SHOWN = fileURLToPath(new URL("../../docs/dashboard.png", import.meta.url));
const DRAWN_MS = 1500;

const FAILS = `
import torchyard
run = torchyard.init()
for step in range(1, 60):
    run.log({"train/loss": 2.3 / step}, step=step)
print("epoch 1: reading shard 7 of 12")
raise ValueError("shard 7 has 3 columns where 4 were expected")
`;

const code = mkdtempSync(join(tmpdir(), "torchyard-code-"));
writeFileSync(join(code, "train.py"), FAILS);
mkdirSync(FOLDER, { recursive: true });
const service = await Service.start({ slots: 3, allow: code });
const browser = await launch();
try {
  const jobs = await run();
  const pages = {
    now: "",
    jobs: "jobs",
    curves: `jobs/${jobs.resumed.id}`,
    logs: `jobs/${jobs.resumed.id}?tab=logs`,
    media: `jobs/${jobs.trained.id}?tab=media`,
    checkpoints: `jobs/${jobs.trained.id}?tab=checkpoints`,
    timeline: `jobs/${jobs.resumed.id}?tab=timeline`,
    spec: `jobs/${jobs.trained.id}?tab=spec`,
    card: `jobs/${jobs.trained.id}?tab=card`,
    failed: `jobs/${jobs.failed.id}`,
    queued: `jobs/${jobs.queued.id}`,
    sweeps: "sweeps",
    sweep: `sweeps/${jobs.sweep.id}`,
    compare: `compare?jobs=${jobs.trained.id},${jobs.other.id},${jobs.resumed.id}`,
  };
  for (const theme of ["light", "dark"] as const)
    for (const width of [1440, 390]) {
      const visited = await visit(browser, service, "", { theme, width });
      for (const [name, path] of Object.entries(pages)) {
        await visited.page.goto(`${service.url}/${path}`);
        await visited.page.waitForTimeout(DRAWN_MS);
        await visited.page.screenshot({ path: join(FOLDER, `${name}-${theme}-${width}.png`) });
      }
      await leave(visited);
    }
  copyFileSync(join(FOLDER, "curves-dark-1440.png"), SHOWN);
} finally {
  await browser.close();
  await service.stop();
  rmSync(code, { recursive: true });
}

/** Runs what the pages show: a sweep and jobs that ended, one that resumed, a failed one, one that a place is kept for, and one behind it. */
async function run(): Promise<
  Record<"trained" | "other" | "resumed" | "failed" | "queued" | "sweep", Pick<Job, "id">>
> {
  const sweep = await swept();
  const trained = await submit(service, digits("digits-baseline", { epochs: 6 }));
  const failed = await submit(service, {
    name: "shards-unet",
    trainer: "script",
    config: { code: `file://${code}`, entrypoint: "train.py" },
    resources: { device: "cpu" },
  });
  const other = await submit(service, digits("digits-batch-128", { epochs: 6, per_device_batch_size: 128 }));
  await Promise.all([reach(service, trained.id, "succeeded"), reach(service, other.id, "succeeded")]);
  await reach(service, failed.id, "failed");
  const resumed = await submit(service, {
    ...digits("digits-long", { epochs: 300 }),
    resources: { device: "cpu", devices_per_node: 2 },
  });
  await reach(service, resumed.id, "running");
  while ((await service.ask<{ progress: { step: number } }>(`v1/jobs/${resumed.id}`)).progress.step < 200)
    await new Promise((later) => setTimeout(later, 200));
  await service.ask(`v1/jobs/${resumed.id}/pause`, { method: "POST" });
  await reach(service, resumed.id, "paused");
  await service.ask(`v1/jobs/${resumed.id}/resume`, { method: "POST" });
  await reach(service, resumed.id, "running");
  const queued = await submit(service, {
    ...digits("cracks-vgg16"),
    resources: { device: "cpu", devices_per_node: 3 },
  });
  await submit(service, {
    ...digits("digits-augmented"),
    resources: { device: "cpu", devices_per_node: 1, cpus: 1, memory_gb: 2 },
  });
  return { trained, other, resumed, failed, queued, sweep };
}

/** Runs a sweep to its end. */
async function swept(): Promise<Pick<Job, "id">> {
  const parameters = { "config.optimizer.lr": [0.1, 0.03, 0.01, 0.003], "config.training.seed": "1..2" };
  const body = { name: "digits-lr", monitor: "val/accuracy", mode: "max", parameters, job: digits("digits") };
  const made = await service.ask<Job>("v1/sweeps", { method: "POST", body });
  while ((await service.ask<Job>(`v1/sweeps/${made.id}`)).state === "running")
    await new Promise((later) => setTimeout(later, 500));
  return made;
}
