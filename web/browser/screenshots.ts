/** Takes pictures of every page of a real service, in both themes and three widths: `make screenshots`. */
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { launch } from "./chromium.ts";
import { digits, reach, submit, type Job } from "./jobs.ts";
import { leave, visit } from "./page.ts";
import { PROGRAM, Service } from "./service.ts";

const FOLDER = fileURLToPath(new URL("../../dist/screenshots/", import.meta.url));
const SHOWN = fileURLToPath(new URL("../../docs/dashboard.png", import.meta.url));
const DRAWN_MS = 1500;
const SCREEN = 900;
const TALLEST = 4000;
/** Those whose pictures go on below the screen. */
const WHOLE = new Set(["media", "misclassified", "compare-groups", "compare-samples", "plots"]);

const LOGS = fileURLToPath(new URL("../../bench/team_program.py", import.meta.url));
const RATES = [0.0003, 0.001, 0.003, 0.01, 0.03, 0.1];

const FAILS = `
import torchyard
run = torchyard.init()
for step in range(1, 60):
    run.log({"train/loss": 2.3 / step}, step=step)
print("epoch 1: reading shard 7 of 12")
raise ValueError("shard 7 has 3 columns where 4 were expected")
`;

/** What the pages show. */
type Ran = Record<
  "trained" | "other" | "resumed" | "failed" | "queued" | "cracks" | "search",
  Pick<Job, "id">
>;

const code = mkdtempSync(join(tmpdir(), "torchyard-code-"));
writeFileSync(join(code, "train.py"), FAILS);
copyFileSync(LOGS, join(code, "cracks.py"));
mkdirSync(FOLDER, { recursive: true });
const service = await Service.start({ slots: 3, allow: code });
const browser = await launch();
try {
  const jobs = await run();
  const pages = await addresses(jobs);
  for (const theme of ["light", "dark"] as const)
    for (const width of [1440, 1920, 390]) {
      const visited = await visit(browser, service, "", { theme, width });
      for (const [name, path] of Object.entries(pages)) {
        await visited.page.goto(`${service.url}/${path}`);
        await visited.page.waitForTimeout(DRAWN_MS);
        if (WHOLE.has(name)) await grow(visited.page, width);
        await visited.page.screenshot({ path: join(FOLDER, `${name}-${theme}-${width}.png`) });
        await visited.page.setViewportSize({ width, height: SCREEN });
      }
      await leave(visited);
    }
  copyFileSync(join(FOLDER, "sweep-dark-1440.png"), SHOWN);
} finally {
  await browser.close();
  await service.stop();
  rmSync(code, { recursive: true });
}

/** Returns the addresses of the pages, by the names of their pictures. */
async function addresses(jobs: Ran): Promise<Record<string, string>> {
  const trials = await service.ask<{ data: readonly Job[] }>(`v1/jobs?sweep=${jobs.search.id}&limit=12`);
  const grouped = trials.data.map(({ id }) => id).join(",");
  const [worker] = (await service.ask<{ data: readonly Job[] }>("v1/workers")).data;
  const of = (job: Pick<Job, "id">, tab = ""): string => `jobs/${job.id}${tab && `?tab=${tab}`}`;
  const sections = ["tokens", "sessions", "usage", "notifications", "secrets", "users", "quotas", "audit"];
  const columns =
    "progress,config.optimizer.lr,config.training.per_device_batch_size,metric:val/loss:best,label:site,owner,age";
  return {
    now: "",
    jobs: "jobs",
    table: `jobs?columns=${columns}`,
    groups: `jobs?columns=${columns}&group=label:site`,
    curves: of(jobs.resumed),
    logs: of(jobs.resumed, "logs"),
    media: of(jobs.cracks, "media"),
    misclassified: of(jobs.trained, "media"),
    checkpoints: of(jobs.trained, "checkpoints"),
    artifacts: of(jobs.cracks, "artifacts"),
    code: of(jobs.cracks, "code"),
    timeline: of(jobs.resumed, "timeline"),
    spec: of(jobs.trained, "spec"),
    card: of(jobs.trained, "card"),
    failed: of(jobs.failed),
    queued: of(jobs.queued),
    sweeps: "sweeps",
    sweep: `sweeps/${jobs.search.id}`,
    schedules: "schedules",
    compare: `compare?jobs=${jobs.trained.id},${jobs.other.id},${jobs.resumed.id}`,
    "compare-groups": `compare?jobs=${grouped}&base=${trials.data[0]?.id ?? ""}&group=args.optimizer`,
    "compare-samples": `compare?jobs=${trials.data
      .slice(0, 3)
      .map(({ id }) => id)
      .join(",")}&media=val/walls`,
    plots: `compare?sweep=${jobs.search.id}`,
    models: "models",
    submit: "submit",
    clone: `submit?from=${jobs.trained.id}`,
    workers: "workers",
    worker: `workers/${worker?.id ?? ""}`,
    ...Object.fromEntries(sections.map((name) => [`settings-${name}`, `settings?section=${name}`])),
  };
}

/** Runs what the pages show: a sweep and jobs that ended, one that resumed, a failed one, one that a place is kept for, and one behind it. */
async function run(): Promise<Ran> {
  await team();
  const bundle = uploaded();
  const search = await searched(bundle);
  await swept();
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
  const shown = await submit(service, cracks("cracks-tunnel", bundle, { site: "tunnel" }));
  await reach(service, shown.id, "succeeded");
  await service.ask(`v1/jobs/${shown.id}`, {
    method: "PATCH",
    body: { notes: "Thin cracks are missed at night.\n\nNext: **more** pictures with a flash." },
  });
  await service.ask("v1/models", { method: "POST", body: { name: "digits", from: `${trained.id}/best` } });
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
  return { trained, other, resumed, failed, queued, cracks: shown, search };
}

/** Makes the screen as high as the page: what is out of sight is not drawn. */
async function grow(page: Page, width: number): Promise<void> {
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  await page.setViewportSize({ width, height: Math.min(height, TALLEST) });
  await page.waitForTimeout(DRAWN_MS);
}

/** Adds users, one with a quota, and what else the settings and the other pages list. */
async function team(): Promise<void> {
  for (const [name, role] of Object.entries({ ada: "operator", ben: "member", cleo: "viewer" }))
    await service.ask("v1/users", { method: "POST", body: { name, role } });
  await service.ask("v1/quotas/users/ben", { method: "PUT", body: { devices: 2, queued: 100, share: 200 } });
  await service.ask("v1/tokens", { method: "POST", body: { name: "laptop" } });
  await service.ask("v1/secrets/DATA_KEY", { method: "PUT", body: { value: "for the pictures alone" } });
  const nightly = { ...digits("digits-nightly"), schedule: "0 3 * * *" };
  await service.ask("v1/schedules", { method: "POST", body: nightly });
}

/** Uploads the programs, and returns their address. */
function uploaded(): string {
  const { url, token } = service.facts;
  const said = execFileSync(PROGRAM, ["data", "push", code], {
    env: { ...process.env, TORCHYARD_URL: url, TORCHYARD_TOKEN: token },
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
  const [found] = /bundle:sha256:[0-9a-f]{64}/.exec(said) ?? [];
  if (!found) throw new Error(said);
  return found;
}

/** Runs a search whose trials show media, to its end. */
async function searched(bundle: string): Promise<Pick<Job, "id">> {
  const parameters = { "args.lr": RATES, "args.optimizer": ["adamw", "sgd"] };
  return ended({
    name: "cracks-search",
    monitor: "val/iou",
    mode: "max",
    parameters,
    job: cracks("cracks", bundle, { site: "bridge" }),
  });
}

/** A job that logs what a search for cracks would. */
function cracks(name: string, bundle: string, labels: Record<string, string>): Record<string, unknown> {
  return {
    name,
    trainer: "script",
    config: { code: bundle, entrypoint: "cracks.py", args: ["--show"] },
    resources: { device: "cpu" },
    checkpoint: { monitor: "val/iou", mode: "max" },
    labels,
  };
}

/** Runs a sweep of digits to its end. */
async function swept(): Promise<void> {
  const parameters = { "config.optimizer.lr": [0.1, 0.03, 0.01, 0.003], "config.training.seed": "1..2" };
  await ended({
    name: "digits-lr",
    monitor: "val/accuracy",
    mode: "max",
    parameters,
    job: digits("digits"),
  });
}

async function ended(sweep: Record<string, unknown>): Promise<Pick<Job, "id">> {
  const made = await service.ask<Job>("v1/sweeps", { method: "POST", body: sweep });
  while ((await service.ask<Job>(`v1/sweeps/${made.id}`)).state === "running")
    await new Promise((later) => setTimeout(later, 500));
  return made;
}
