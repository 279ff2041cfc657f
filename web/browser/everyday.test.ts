/** What people do every day on the page, and what each of its pages keeps to. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launch } from "./chromium.ts";
import { digits, reach, submit, type Job } from "./jobs.ts";
import { code, freshContext, leave, visit } from "./page.ts";
import { mount } from "./proxy.ts";
import { Service } from "./service.ts";

const OUTPUT = `
import sys, time
print("<script>document.title = 'taken'</script><img src=x onerror=alert(1)>")
print("\\x1b[31mred words\\x1b[0m and plain ones")
for line in range(600):
    print(f"line {line} of many")
sys.stdout.flush()
raise SystemExit("the disk of dreams is full")
`;

let service: Service;
let browser: Browser;
let trained: Job;
let failed: Job;
const folder = mkdtempSync(join(tmpdir(), "torchyard-code-"));

before(async () => {
  writeFileSync(join(folder, "train.py"), OUTPUT);
  [service, browser] = await Promise.all([Service.start({ slots: 2, allow: folder }), launch()]);
  trained = await submit(service, digits("cracks-unet"));
  failed = await submit(service, {
    name: "noisy",
    trainer: "script",
    max_restarts: 0,
    config: { code: `file://${folder}`, entrypoint: "train.py" },
    resources: { device: "cpu" },
  });
  await Promise.all([reach(service, trained.id, "succeeded"), reach(service, failed.id, "failed")]);
});

after(async () => {
  await browser?.close();
  await service?.stop();
  rmSync(folder, { recursive: true });
});

test("a picture that a job shows is fetched with the secret, and drawn", async () => {
  const visited = await visit(browser, service);
  const { page } = visited;
  const [picture] = await Promise.all([
    page.waitForResponse(/\/media\/med_[^/]+\/image$/),
    page.goto(`${service.url}/jobs/${trained.id}?tab=media`),
  ]);
  assert.equal(picture.status(), 200);
  assert.match(picture.request().headers()["x-csrf-token"] ?? "", /^.{40,}$/);
  await page.waitForFunction(
    () => (document.querySelector<HTMLImageElement>("main img")?.naturalWidth ?? 0) > 0,
  );
  await leave(visited);
});

test("files are saved by a link, and a log by its raw button", async () => {
  const visited = await visit(browser, service, `jobs/${trained.id}?tab=checkpoints`);
  const { page } = visited;
  const [checkpoint] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "download" }).first().click(),
  ]);
  assert.match(checkpoint.suggestedFilename(), /^cracks-unet-epoch-\d\.pt$/);
  assert.ok((await readFile(await checkpoint.path())).length > 1000);
  await page.goto(`${service.url}/jobs/${failed.id}?tab=logs`);
  const [log] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "raw" }).click(),
  ]);
  assert.equal(log.suggestedFilename(), "noisy-logs.txt");
  assert.ok((await readFile(await log.path(), "utf8")).includes("line 599 of many"));
  await leave(visited);
});

test("a code is good once, and a token logs in instead", async () => {
  const used = await code(service);
  await service.ask("v1/session", { method: "POST", body: { code: used } });
  const context = await freshContext(browser);
  const page = await context.newPage();
  await page.goto(`${service.url}/#code=${used}`);
  await page.getByRole("status").getByText("torchyard open").waitFor();
  await page.getByLabel("Personal token").fill(service.facts.token);
  await page.keyboard.press("Enter");
  await page.getByRole("navigation", { name: "Pages" }).waitFor();
  await context.close();
});

test("a checkpoint is kept as a model, which the page of models shows and downloads", async () => {
  const visited = await visit(browser, service, `jobs/${trained.id}?tab=checkpoints`);
  const { page } = visited;
  await page.locator("tbody").getByRole("button", { name: "More" }).first().click();
  await page.getByRole("menuitem", { name: "Save as model" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Save", exact: true }).click();
  await page.getByRole("link", { name: "cracks-unet@1" }).click();
  await page.getByRole("button", { name: "cracks-unet" }).click();
  await page.getByRole("link", { name: trained.id.slice(0, 16) }).waitFor();
  const saved = page.waitForEvent("download");
  await page.getByRole("button", { name: "download" }).click();
  assert.equal((await saved).suggestedFilename(), "cracks-unet-v1.pt");
  await leave(visited);
});

test("every page keeps to the policy, asks only this service and fits into 390 pixels", async () => {
  const visited = await visit(browser, service, "", { width: 390, height: 800, theme: "dark" });
  const tabs = ["curves", "logs", "checkpoints", "timeline", "spec", "card"].map(
    (tab) => `jobs/${trained.id}?tab=${tab}`,
  );
  const compared = `compare?jobs=${trained.id},${failed.id}`;
  for (const path of ["", "jobs", "models", ...tabs, `jobs/${failed.id}`, compared]) {
    await visited.page.goto(`${service.url}/${path}`);
    await visited.page.locator("main h1, main h2, main section").first().waitFor();
    const wider = await visited.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wider <= 0, `${path || "now"} is ${wider} px too wide`);
  }
  await leave(visited);
});

test("a deep link below a proxy's path reloads", async () => {
  const proxy = await mount(service.url, "/a/b/");
  try {
    const visited = await visit(browser, service, `jobs/${trained.id}`, { root: proxy.root });
    await visited.page.reload();
    await visited.page.getByRole("heading", { name: trained.name }).waitFor();
    await visited.page.getByRole("link", { name: "Jobs", exact: true }).click();
    await visited.page.getByText("noisy").first().waitFor();
    assert.equal(new URL(visited.page.url()).pathname, "/a/b/jobs");
    await leave(visited);
  } finally {
    proxy.stop();
  }
});

test("a new job's row appears without a reload", async () => {
  const visited = await visit(browser, service, "jobs");
  await visited.page.getByText("cracks-unet").first().waitFor();
  const added = await submit(service, {
    ...digits("comes-late"),
    resources: { device: "cpu", devices_per_node: 2 },
  });
  await visited.page.getByText("comes-late").first().waitFor();
  await reach(service, added.id, "succeeded");
  await leave(visited);
});

test("a failed job's page says what happened before all but its name, and its log is text in colour", async () => {
  const visited = await visit(browser, service, `jobs/${failed.id}`);
  const { page } = visited;
  const advice = page.getByRole("region", { name: "Status and next steps" });
  await advice.waitFor();
  assert.ok((await advice.innerText()).includes("dreams"));
  assert.ok((await top(page, ".advice")) < (await top(page, ".facts")));
  await page.goto(`${service.url}/jobs/${failed.id}?tab=logs&line=1`);
  await page.getByText("<script>document.title = 'taken'</script>").waitFor();
  assert.notEqual(await page.title(), "taken");
  const [red, plain] = await Promise.all(
    ["red words", " and plain ones"].map((text) =>
      page.getByText(text, { exact: true }).evaluate((element) => getComputedStyle(element).color),
    ),
  );
  assert.notEqual(red, plain);
  await leave(visited);
});

test("a search finds a line in its context, and the address holds it", async () => {
  const visited = await visit(browser, service, `jobs/${failed.id}?tab=logs`);
  const { page } = visited;
  await page.getByRole("searchbox", { name: "Search the log" }).fill("line 77 of");
  await page.locator(".count", { hasText: /^1$/ }).waitFor();
  await page.keyboard.press("Enter");
  await page.locator(".chosen .hit").waitFor();
  await page.getByText("line 78 of many").waitFor();
  const other = await visit(browser, service, new URL(page.url()).href.slice(service.url.length + 1));
  await other.page.locator(".chosen", { hasText: "line 77 of many" }).waitFor();
  await leave(other);
  await leave(visited);
});

test("an undone cancel sends nothing, and one that is not undone is sent", async () => {
  const long = await submit(service, digits("runs-long", { epochs: 5000 }));
  await reach(service, long.id, "running");
  const visited = await visit(browser, service, `jobs/${long.id}`);
  const { page } = visited;
  const sent: string[] = [];
  page.on("request", (request) => {
    if (request.method() === "POST") sent.push(new URL(request.url()).pathname);
  });
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await page.getByRole("button", { name: /Undo/ }).click();
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await reach(service, long.id, "cancelled");
  assert.deepEqual(
    sent.filter((path) => path.endsWith("/cancel")),
    [`/v1/jobs/${long.id}/cancel`],
  );
  await page.locator(".cancelled", { hasText: "cancelled" }).first().waitFor();
  await leave(visited);
});

async function top(page: Page, selector: string): Promise<number> {
  return (await page.locator(selector).first().boundingBox())?.y ?? Number.NaN;
}
