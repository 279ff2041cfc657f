/** Every page for everybody: without a mouse, with few rights, in many tabs, on a plain-HTTP name. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Browser } from "playwright-core";
import { launch } from "./chromium.ts";
import { Feeds } from "./feed.ts";
import { digits, reach, submit, type Job } from "./jobs.ts";
import { freshContext, leave, visit } from "./page.ts";
import { Service } from "./service.ts";

const NAME = "yard.test";

let service: Service;
let browser: Browser;
let trained: Job;
let failed: Job;
let runs: Job;
let waits: Job;
const feeds = new Feeds();
const broken = mkdtempSync(join(tmpdir(), "torchyard-code-"));

before(async () => {
  writeFileSync(
    join(broken, "train.py"),
    'print("\\x1b[31mred\\x1b[0m")\nraise SystemExit("no such file: data.csv")',
  );
  [service, browser] = await Promise.all([
    Service.start({
      slots: 2,
      allow: `${feeds.folder}:${broken}`,
      settings: { TORCHYARD_ALLOWED_HOSTS: NAME, TORCHYARD_VISIBILITY: "team" },
    }),
    launch([NAME]),
  ]);
  trained = await submit(service, digits("cracks-unet"));
  failed = await submit(service, {
    name: "breaks",
    trainer: "script",
    max_restarts: 0,
    config: { code: `file://${broken}`, entrypoint: "train.py" },
    resources: { device: "cpu" },
  });
  await Promise.all([reach(service, trained.id, "succeeded"), reach(service, failed.id, "failed")]);
  const kept = { name: "cracks-unet", from: `${trained.id}/best` };
  await service.ask("v1/models", { method: "POST", body: kept });
  runs = await feeds.submit(service, "runs", { until: 200, kept: 100 });
  await reach(service, runs.id, "running");
  waits = await submit(service, { ...digits("waits"), resources: { device: "cpu", devices_per_node: 2 } });
  const job = { ...digits("lr"), priority: -100 };
  const varied = { name: "lr", max_parallel: 1, parameters: { "config.optimizer.lr": [0.1, 0.01] }, job };
  await service.ask("v1/sweeps", { method: "POST", body: varied });
  const yearly = { ...digits("yearly"), schedule: "0 3 1 1 *" };
  await service.ask("v1/schedules", { method: "POST", body: yearly });
});

after(async () => {
  await browser?.close();
  await service?.stop();
  feeds.remove();
  rmSync(broken, { recursive: true });
});

test("opening a job, or comparing some, asks for nothing twice", async () => {
  const visited = await visit(browser, service);
  const { page } = visited;
  let asked: string[] = [];
  let renamed = 0;
  page.on("request", (request) => asked.push(`${request.method()} ${request.url()}`));
  const tabs = ["curves", "logs", "checkpoints", "timeline"].map((tab) => `jobs/${trained.id}?tab=${tab}`);
  for (const path of [...tabs, `compare?jobs=${trained.id},${failed.id}`]) {
    asked = [];
    await page.goto(`${service.url}/${path}`);
    await page.locator(".status.live").waitFor();
    // What comes by the stream comes after all that its beginning has caused.
    const name = `cracks-unet-${(renamed += 1)}`;
    await service.ask(`v1/jobs/${trained.id}`, { method: "PATCH", body: { name } });
    await page.getByText(name, { exact: true }).first().waitFor();
    const reads = asked.filter((request) => request.includes("/v1/jobs/") || request.includes("/v1/metrics"));
    assert.ok(reads.length >= 3, path);
    assert.deepEqual(reads.sort(), [...new Set(reads)], path);
  }
  await leave(visited);
});

test("a page opens without a shift, says nothing of points before they came, and back leads to where it was left", async () => {
  const visited = await visit(browser, service, "", { height: 500 });
  const { page } = visited;
  const shift = (): Promise<number> =>
    page.evaluate(
      () =>
        new Promise<number>((done) => {
          let sum = 0;
          const watcher = new PerformanceObserver((list) => {
            for (const entry of list.getEntries() as (PerformanceEntry & { value: number })[])
              sum += entry.value;
          });
          watcher.observe({ type: "layout-shift", buffered: true });
          setTimeout(() => done(sum), 500);
        }),
    );
  await page.goto(`${service.url}/jobs/${failed.id}`);
  await page.getByRole("region", { name: "Status and next steps" }).waitFor();
  await page.getByText("This job has logged no metrics.").waitFor();
  assert.ok((await shift()) < 0.05);

  let answer: () => void = () => undefined;
  const held = new Promise<void>((done) => (answer = done));
  await page.route("**/v1/metrics?**key=**", async (route) => {
    await held;
    await route.continue();
  });
  await page.goto(`${service.url}/jobs/${trained.id}`);
  const chart = page.locator("figure").first();
  await chart.waitFor();
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  assert.equal(await page.getByText("No points").count(), 0);
  answer();
  await page.locator("figure .u-over").first().waitFor();

  await page.evaluate(() => window.scrollTo(0, 300));
  await page.waitForFunction(() => new Promise((done) => requestAnimationFrame(() => done(true))));
  await page.keyboard.press("g"); // a click would scroll to the link
  await page.keyboard.press("j");
  await page.getByRole("heading", { name: "Jobs" }).waitFor();
  assert.equal(await page.evaluate(() => window.scrollY), 0);
  await page.goBack();
  await page.waitForFunction(() => window.scrollY === 300);
  await leave(visited);
});

test("colours change within 150 ms, and at once for who wants little motion", async () => {
  const visited = await visit(browser, service, "jobs");
  const { page } = visited;
  const times = (): Promise<string[]> =>
    page.evaluate(() => {
      const all = [...document.querySelectorAll("*")].map((element) => getComputedStyle(element));
      return [...new Set(all.flatMap((style) => style.transitionDuration.split(", ")))].sort();
    });
  for (const path of ["jobs", `jobs/${trained.id}`, "submit", "settings"]) {
    await page.goto(`${service.url}/${path}`);
    await page.getByRole("heading").first().waitFor();
    await page.emulateMedia({ reducedMotion: "no-preference" });
    assert.deepEqual(await times(), ["0.15s", "0s"], path);
    await page.emulateMedia({ reducedMotion: "reduce" });
    assert.deepEqual(await times(), ["0s"], path);
  }
  await leave(visited);
});

test("the keyboard alone finds a job, pauses it and resumes it", async () => {
  const visited = await visit(browser, service);
  const { page } = visited;
  await page.keyboard.press("/");
  await page.keyboard.type("runs");
  await page.getByRole("option", { name: /runs/ }).first().waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "runs", exact: true }).waitFor();
  await page.getByRole("button", { name: "Stop", exact: true }).waitFor();
  await page.keyboard.press("p");
  await reach(service, runs.id, "paused");
  await page.getByRole("button", { name: "Resume" }).waitFor();
  await page.keyboard.press("p");
  await reach(service, runs.id, "running", "queued", "starting");
  await page.getByRole("button", { name: "Stop", exact: true }).waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("j");
  await page.waitForURL(/\/jobs$/);
  await page.locator("main [data-row]").first().waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/jobs\/job_/);
  await leave(visited);
});

const READERS = [
  { role: "viewer", scopes: null, offered: [] },
  { role: "member", scopes: null, offered: ["Retry"] },
  { role: "operator", scopes: ["jobs:read"], offered: [] },
] as const;

for (const { role, scopes, offered } of READERS)
  test(`${scopes ? "a token that only reads" : `a ${role}`} is offered nothing that the service refuses`, async () => {
    await service.ask("v1/users", { method: "POST", body: { name: `some-${role}`, role } });
    const { token } = await service.ask<{ token: string }>("v1/tokens", {
      method: "POST",
      body: { user: `some-${role}`, ...(scopes ? { scopes } : {}) },
    });
    const visited = await visit(browser, service, "", { token });
    const { page } = visited;
    const refused: string[] = [];
    page.on("response", (answer) => {
      if (answer.status() === 403) refused.push(`${answer.request().method()} ${answer.url()}`);
    });
    const priced: string[] = [];
    page.on("request", (request) => {
      if (request.url().includes("dry_run=true")) priced.push(request.url());
    });
    const found: string[] = [];
    const jobs = [runs, waits, failed, trained].map((job) => `jobs/${job.id}`);
    for (const path of ["", "jobs", "models", ...jobs, `compare?jobs=${trained.id},${runs.id}`]) {
      await page.goto(`${service.url}/${path}`);
      await page.locator(".status.live").waitFor();
      await page
        .locator("main")
        .getByText(/cracks-unet|runs|waits|breaks/)
        .first()
        .waitFor();
      if (path === "") assert.equal(await page.getByText("No jobs yet.").count(), 0);
      if (path === "jobs") {
        await page.keyboard.press("j");
        await page.keyboard.press("x");
        await page.getByRole("toolbar").waitFor();
      }
      if (path.startsWith("jobs/")) await page.getByRole("button", { name: "More" }).click();
      for (const kind of ["button", "menuitem"] as const) {
        const some = page.getByRole(kind, { name: /^(Stop|Pause|Resume|Cancel|Kill|Retry|Delete)( .)?$/ });
        found.push(...(await some.allInnerTexts()));
      }
      await page.keyboard.press("Escape");
      await page.keyboard.press("p");
      await page.keyboard.press("Control+k");
      const options = page.getByRole("option", {
        name: role === "member" ? /this job/ : /Pauses|Resumes|Stops|Undoes/,
      });
      found.push(...(await options.allInnerTexts()));
    }
    assert.deepEqual(found, offered);
    assert.deepEqual(refused, []);
    assert.deepEqual(priced, [], "who can stop nothing asks for no price of it");
    await leave(visited);
  });

test("eight tabs load on a plain-HTTP name, are live, and copy", async () => {
  const root = service.url.replace("127.0.0.1", NAME);
  const context = await freshContext(browser);
  const first = await context.newPage();
  await first.goto(`${root}/jobs/${trained.id}`);
  assert.equal(await first.evaluate(() => isSecureContext), false);
  await first.getByLabel("Personal token").fill(service.facts.token);
  await first.keyboard.press("Enter");
  await first.getByRole("heading", { name: trained.name }).waitFor();
  const tabs = [first];
  while (tabs.length < 8) {
    const page = await context.newPage();
    await page.goto(`${root}/jobs`);
    await page.getByText(trained.name).first().waitFor();
    tabs.push(page);
  }
  const added = await submit(service, {
    ...digits("comes-late"),
    resources: { device: "cpu", devices_per_node: 2 },
  });
  await Promise.all(tabs.slice(1).map((page) => page.getByText("comes-late").first().waitFor()));
  await service.ask(`v1/jobs/${added.id}/cancel`, { method: "POST" });
  await first.bringToFront();
  await first.getByRole("button", { name: "More" }).click();
  await first.getByRole("menuitem", { name: "Copy as command line" }).click();
  await first.getByRole("status").getByText("Copied.").waitFor();
  await first.keyboard.press("Control+k");
  await first.getByRole("combobox", { name: "Name of a page, a job or another thing" }).focus();
  await first.keyboard.press("Control+v");
  const pasted = await first
    .getByRole("combobox", { name: "Name of a page, a job or another thing" })
    .inputValue();
  assert.match(pasted, /torchyard/);
  await context.close();
});

test("the page of the REST interface shows the service's own document, and nothing breaks its policy", async () => {
  const visited = await visit(browser, service);
  const { page } = visited;
  await page.goto(`${service.url}/docs/rest`);
  await page.getByText("/v1/jobs", { exact: true }).first().waitFor();
  await page.getByPlaceholder("Filter by tag or path").fill("/v1/workers");
  await page.getByText("/v1/workers", { exact: true }).first().waitFor();
  await leave(visited);
});
