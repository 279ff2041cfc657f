/** Compare and the plots of runs, by keys alone, in both themes and widths. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launch } from "./chromium.ts";
import { leave, visit } from "./page.ts";
import { reach, submit } from "./jobs.ts";
import { PROGRAM as COMMAND, Service } from "./service.ts";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PROGRAM = `
import argparse
import torchyard

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--seed", type=int)
chosen = parser.parse_args()
run = torchyard.init()
for step in range(1, 101):
    run.log({"val/loss": chosen.lr * 10 + chosen.seed / 10 + 1 / step}, step=step)
`;

const WRITES = `
import torchyard

run = torchyard.init()
for step in (50, 100):
    run.log({"val/loss": 1 / step}, step=step)
    run.log_text("samples", [f"NAME at {step}, sample {number}" for number in range(3)], step=step)
`;

interface Trial {
  readonly job_id: string;
  readonly state: string;
}

let service: Service;
let browser: Browser;
let sweep: { readonly id: string };
/** Ids of the jobs, the best first. */
let jobs: readonly string[];
const code = mkdtempSync(join(tmpdir(), "torchyard-code-"));

before(async () => {
  writeFileSync(join(code, "train.py"), PROGRAM);
  [service, browser] = await Promise.all([Service.start({ slots: 4, allow: code }), launch()]);
  const job = {
    trainer: "script",
    config: { code: `file://${code}`, entrypoint: "train.py" },
    resources: { device: "cpu" },
  };
  const parameters = { "args.lr": [0.1, 0.2], "args.seed": [1, 2] };
  const varied = { name: "lr", monitor: "val/loss", mode: "min", parameters, job };
  sweep = await service.ask("v1/sweeps", { method: "POST", body: varied });
  jobs = await trained();
});

after(async () => {
  await browser?.close();
  await service?.stop();
  rmSync(code, { recursive: true });
});

test("jobs are compared with a baseline, moved, grouped and kept by the ranges of axes, by keys alone", async () => {
  const visited = await visit(browser, service, `compare?jobs=${jobs.join(",")}`);
  const { page } = visited;
  const query = (): URLSearchParams => new URL(page.url()).searchParams;
  await page.getByRole("radio").nth(0).focus();
  await page.keyboard.press("Space");
  await page.getByText("+0.100").first().waitFor();
  assert.equal(query().get("base"), jobs[0]);
  assert.equal(await page.getByRole("img", { name: "worse" }).count(), 3);
  await page
    .getByRole("button", { name: /^Move lr-/ })
    .first()
    .focus();
  await page.keyboard.press("ArrowDown");
  await page.waitForURL((url) => url.searchParams.get("jobs")?.startsWith(`${jobs[1]},${jobs[0]}`) ?? false);
  await page.getByLabel("Group curves by").selectOption({ label: "lr" });
  await page.getByRole("list", { name: "Groups" }).getByText("lr 0.2").waitFor();
  await page.getByText("mean ± standard deviation of 2 jobs").first().waitFor();
  await page.getByRole("slider", { name: /^lr:/ }).focus();
  await page.keyboard.press("ArrowUp");
  await page.getByText("2 of 4 runs").first().waitFor();
  await page.waitForURL((url) => url.searchParams.get("brush") === "args.lr:0.5~1");
  await page.getByRole("button", { name: "As a table" }).focus();
  await page.keyboard.press("Enter");
  const rows = page.getByRole("region", { name: "Runs as a table" }).locator("tbody tr");
  assert.equal(await rows.count(), 2);
  const other = await visit(browser, service, pathOf(page));
  await other.page.getByText("2 of 4 runs").first().waitFor();
  await other.page.getByRole("list", { name: "Groups" }).waitFor();
  await other.page.getByText("+0.100").first().waitFor();
  await leave(other);
  await leave(visited);
});

test("generated texts stand side by side at one step, and the code of two jobs is compared, by keys alone", async () => {
  const names = ["first", "second", "third", "fourth"];
  const ids: string[] = [];
  for (const name of names) ids.push(await written(name));
  const path = `compare?jobs=${ids.join(",")}`;
  const visited = await visit(browser, service, path, { width: 700, height: 4000 });
  const { page } = visited;
  const texts = page.getByRole("region", { name: /^Samples of/ }).locator("pre");
  await page.getByText("Of 4 jobs: scroll sideways").waitFor();
  assert.deepEqual((await texts.allTextContents()).slice(0, 2), [
    "first at 100, sample 0",
    "first at 100, sample 1",
  ]);
  await page.getByRole("slider", { name: "Step" }).focus();
  await page.keyboard.press("ArrowLeft");
  await texts.filter({ hasText: "second at 50, sample 2" }).waitFor();
  await page.getByLabel(/^from/).selectOption({ label: "second" });
  for (const name of ["Files that differ", "Packages that differ"]) {
    await page.getByText(name).focus();
    await page.keyboard.press("Enter");
  }
  await page.getByText("Both have the same packages.").waitFor();
  await page.getByRole("button", { name: "train.py" }).focus();
  await page.keyboard.press("Enter");
  const patch = page.getByRole("region", { name: "Differences of train.py" });
  assert.match((await patch.textContent()) ?? "", /-.*second at.*\+.*first at/s);
  const other = await visit(browser, service, pathOf(page), { height: 4000 });
  await other.page.getByText("second at 50, sample 2").waitFor();
  assert.equal(await other.page.getByLabel(/^from/).inputValue(), ids[1]);
  assert.equal(await other.page.getByText("scroll sideways").count(), 0);
  await leave(other);
  await leave(visited);
});

test("the runs of a sweep are plotted on its page and by a filter, and go on to the curves", async () => {
  const visited = await visit(browser, service, `sweeps/${sweep.id}`);
  const { page } = visited;
  await page.getByRole("link", { name: "Compare these 4" }).waitFor();
  assert.ok((await inked(page)) > 100, "the runs are painted");
  await page.goto(`${service.url}/compare?sweep=${sweep.id}`);
  await page.getByRole("button", { name: "Curves of these 4" }).click();
  await page.locator("figure").first().waitFor();
  assert.equal(new URL(page.url()).searchParams.get("jobs"), jobs.join(","));
  await leave(visited);
});

for (const theme of ["light", "dark"] as const)
  for (const width of [1440, 390])
    test(`comparing has no serious fault for a screen reader in the ${theme} theme at ${width} px`, async () => {
      const visited = await visit(browser, service, "", { theme, width });
      const { page } = visited;
      const compared = `compare?jobs=${jobs.join(",")}&base=${jobs[0]}&group=args.lr&brush=args.lr:0.5~1`;
      for (const path of [compared, `compare?sweep=${sweep.id}`, `sweeps/${sweep.id}`]) {
        await page.goto(`${service.url}/${path}`);
        await page.getByRole("slider").first().waitFor();
        assert.deepEqual(await faultsOf(page), [], path);
        const beyond = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(beyond <= 0, `${path} is wider than the screen by ${beyond} px`);
      }
      await leave(visited);
    });

/** Runs a job that writes texts with its name, of code that is uploaded. Returns its id. */
async function written(name: string): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "torchyard-code-"));
  writeFileSync(join(folder, "train.py"), WRITES.replace("NAME", name));
  const { url, token } = service.facts;
  const env = { ...process.env, TORCHYARD_URL: url, TORCHYARD_TOKEN: token };
  const said = execFileSync(COMMAND, ["data", "push", folder], {
    env,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
  rmSync(folder, { recursive: true });
  const [uploaded] = /bundle:sha256:[0-9a-f]{64}/.exec(said) ?? [];
  const config = { code: uploaded, entrypoint: "train.py" };
  const job = await submit(service, { name, trainer: "script", config, resources: { device: "cpu" } });
  await reach(service, job.id, "succeeded");
  return job.id;
}

/** Returns where a page is, as another browser gets it. */
function pathOf(page: Page): string {
  const { pathname, search } = new URL(page.url());
  return `${pathname.slice(1)}${search}`;
}

/** Waits until all trials have ended. Returns their jobs, the best first. */
async function trained(): Promise<readonly string[]> {
  for (;;) {
    const path = `v1/sweeps/${sweep.id}/trials?sort=value`;
    const { data } = await service.ask<{ data: readonly Trial[] }>(path);
    if (data.some(({ state }) => state === "failed")) throw new Error("a trial failed");
    if (data.length === 4 && data.every(({ state }) => state === "succeeded"))
      return data.map(({ job_id }) => job_id);
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}

/** Returns how many pixels of the parallel coordinates' canvas are painted. */
function inked(page: Page): Promise<number> {
  return page
    .getByRole("region", { name: "Parallel coordinates" })
    .locator("canvas")
    .evaluate((canvas: HTMLCanvasElement) => {
      const data = canvas.getContext("2d")?.getImageData(0, 0, canvas.width, canvas.height).data ?? [];
      return data.filter((value, i) => i % 4 === 3 && value > 0).length;
    });
}

async function faultsOf(page: Page): Promise<readonly string[]> {
  await page.evaluate(AXE);
  return page.evaluate(async () => {
    interface Axe {
      run(): Promise<{ violations: { id: string; impact: string; nodes: { html: string }[] }[] }>;
    }
    const { violations } = await (window as unknown as { axe: Axe }).axe.run();
    return violations
      .filter(({ impact }) => impact === "serious" || impact === "critical")
      .map(({ id, nodes }) => `${id}: ${nodes[0]?.html ?? ""}`);
  });
}
