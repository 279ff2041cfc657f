/** Tests the list of jobs with charts: hiding a job, highlighting its line, the address, a sweep's best trial. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launch } from "./chromium.ts";
import { leave, visit } from "./page.ts";
import { Service } from "./service.ts";

const PROGRAM = `
import argparse, math
import torchyard
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float)
a = p.parse_args()
run = torchyard.init()
for step in range(1, 40):
    loss = abs(math.log10(a.lr) + 2) + 1 / step
    run.log({"val/loss": loss, "train/loss": loss / 2, "only": step}, step=step)
`;
const RATES = Array.from({ length: 20 }, (_, i) => 10 ** (-4 + i / 5));
/** Its lr is nearest to 0.01. */
const BEST = "rates-10";
/** What the page says of it, which no rank correlation finds: the best rate lies in the middle. */
const BEST_RATES = /^best at 0\.00\d+–0\.01\d+ \(correlation ratio\)$/;

let code: string;
let service: Service;
let browser: Browser;
let sweep: string;

before(async () => {
  code = mkdtempSync(join(tmpdir(), "torchyard-code-"));
  writeFileSync(join(code, "train.py"), PROGRAM);
  [service, browser] = await Promise.all([Service.start({ slots: 4, allow: code }), launch()]);
  const job = { trainer: "script", config: { code: `file://${code}` }, resources: { device: "cpu" } };
  const body = { name: "rates", monitor: "val/loss", mode: "min", parameters: { "args.lr": RATES }, job };
  sweep = (await service.ask<{ id: string }>("v1/sweeps", { method: "POST", body })).id;
  while ((await service.ask<{ state: string }>(`v1/sweeps/${sweep}`)).state === "running")
    await new Promise((later) => setTimeout(later, 200));
});

after(async () => {
  await browser?.close();
  await service?.stop();
  if (code) rmSync(code, { recursive: true });
});

/** Returns the names of the rows whose eye is open. */
function open(page: Page): Promise<string[]> {
  return page
    .locator("td.eye button[aria-pressed=true]")
    .evaluateAll((eyes) =>
      eyes.map((eye) => eye.getAttribute("aria-label")?.replace("Curves of ", "") ?? ""),
    );
}

test("of 20 runs the best, and what it has set, are found by two clicks from Jobs", async () => {
  const visited = await visit(browser, service, "jobs");
  const { page } = visited;
  await page.getByRole("button", { name: "charts", exact: true }).click();
  await page.getByRole("columnheader").getByRole("button", { name: "val/loss min" }).click();
  const first = page.locator("tbody tr[data-row]").first();
  await first.getByRole("link", { name: BEST, exact: true }).waitFor();
  await first.getByText("0.01", { exact: true }).waitFor();
  await page.getByRole("figure", { name: "loss" }).locator("canvas").first().waitFor();
  await leave(visited);
});

test("what an eye has hidden is hidden after a visit to a job, and after a reload", async () => {
  const visited = await visit(browser, service, "jobs?as=charts");
  const { page } = visited;
  await page.getByRole("button", { name: "Curves of rates-3" }).click();
  const left = (await open(page)).filter((name) => name !== "rates-3");
  assert.equal(left.length, 19);
  await page.getByRole("link", { name: "rates-5", exact: true }).click();
  await page.getByRole("heading", { name: "rates-5" }).waitFor();
  await page.goBack();
  await page.getByRole("button", { name: "Curves of rates-3" }).waitFor();
  assert.deepEqual(await open(page), left);
  await page.reload();
  await page.getByRole("button", { name: "Curves of rates-3" }).waitFor();
  assert.deepEqual(await open(page), left);
  await page.getByRole("button", { name: "none", exact: true }).click();
  await page.getByText("Select an eye in the list").waitFor();
  await page.getByRole("button", { name: "Curves of rates-7" }).click();
  await page.locator("figure canvas").first().waitFor();
  assert.deepEqual(await open(page), ["rates-7"]);
  await leave(visited);
});

test("the line of the row under the pointer stands out, and the row of the line under it", async () => {
  const visited = await visit(browser, service, `jobs?as=charts&sweep=${sweep}`);
  const { page } = visited;
  const over = page.locator("figure .over").first();
  await page.locator("figure canvas").first().waitFor();
  await page.locator(`tr:has-text("rates-4")`).hover();
  await over.waitFor({ state: "visible" });
  await page.mouse.move(5, 5);
  await over.waitFor({ state: "hidden" });
  const host = page.locator("figure .host").first();
  const { x, y, width, height } = (await host.boundingBox()) ?? { x: 0, y: 0, width: 0, height: 0 };
  for (let at = 20; at < height - 30 && (await page.locator("tr[data-row].marked").count()) === 0; at += 10)
    await page.mouse.move(x + width / 2, y + at);
  assert.equal(await page.locator("tr[data-row].marked").count(), 1);
  await page.getByRole("heading", { name: /^Best val\/loss so far/ }).waitFor();
  await page.getByRole("cell", { name: BEST_RATES }).waitFor();
  await leave(visited);
});

test("a sweep's page has its trials beside their curves, and each stands out with the other", async () => {
  const visited = await visit(browser, service, `sweeps/${sweep}`);
  const { page } = visited;
  await page.getByRole("region", { name: "Sweep" }).getByRole("cell", { name: BEST_RATES }).waitFor();
  await page.getByRole("figure", { name: "loss" }).locator("canvas").first().waitFor();
  await page.getByRole("row", { name: BEST }).hover();
  await page.locator("figure .over").first().waitFor({ state: "visible" });
  await page.locator("svg circle.marked").waitFor();
  await page.locator("svg circle.lead").last().hover();
  await page.locator("tr.marked", { hasText: BEST }).waitFor();
  await page.getByRole("button", { name: `Curves of ${BEST}` }).click();
  assert.equal((await open(page)).includes(BEST), false);
  await page.reload();
  await page.getByRole("button", { name: `Curves of ${BEST}` }).waitFor();
  assert.equal((await open(page)).length, 19);
  await leave(visited);
});

test("on a phone the charts stand above the rows, and nothing is wider than the screen", async () => {
  const visited = await visit(browser, service, "jobs?as=charts", { width: 390, theme: "dark", touch: true });
  const { page } = visited;
  await page.locator("figure canvas").first().waitFor();
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 390);
  await leave(visited);
});
