/** The table of jobs on a real page: columns, groups and edits by keys alone, and nothing serious for axe. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launch } from "./chromium.ts";
import { digits, submit } from "./jobs.ts";
import { leave, visit } from "./page.ts";
import { Service } from "./service.ts";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

let service: Service;
let browser: Browser;

before(async () => {
  [service, browser] = await Promise.all([Service.start(), launch()]);
  for (const [name, lr] of [
    ["slow", 0.001],
    ["quick", 0.1],
    ["quicker", 0.1],
  ] as const) {
    const spec = digits(name) as { config: object };
    const resources = { device: "cpu", devices_per_node: 9 }; // they wait
    await submit(service, { ...spec, resources, config: { ...spec.config, optimizer: { lr } } });
  }
});

after(async () => {
  await browser?.close();
  await service?.stop();
});

test("columns are chosen, jobs grouped, and a label written, by keys alone", async () => {
  const visited = await visit(browser, service, "jobs");
  const { page } = visited;
  await page.getByRole("button", { name: "columns" }).press("Enter");
  await page.getByRole("searchbox", { name: "Find a column" }).fill("optimizer.lr");
  await page.getByRole("checkbox", { name: "config.optimizer.lr", exact: true }).press("Space");
  await page.getByRole("searchbox", { name: "Find a column" }).fill("Labels");
  await page.getByRole("checkbox", { name: "Labels", exact: true }).press("Space");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  await page.locator("tbody td.cell", { hasText: "0.001" }).waitFor();

  await page.getByRole("button", { name: "Labels of slow: none" }).press("Enter");
  await page.getByRole("textbox", { name: "Labels of slow" }).fill("team=roads");
  const stored = page.waitForResponse("**/v1/jobs/actions"); // the row shows it before
  await page.keyboard.press("Enter");
  await stored;
  await page.getByRole("button", { name: "Labels of slow: team=roads" }).waitFor();
  await page.getByRole("button", { name: "Star slow" }).press("Enter");
  const [slow] = (await service.ask<{ data: { labels: object; starred: boolean }[] }>("v1/jobs?q=slow")).data;
  assert.deepEqual(slow?.labels, { team: "roads" });

  await page.getByRole("combobox", { name: "group by" }).fill("config.optimizer.lr");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: /^0.1 2 jobs/ }).press("Enter");
  await page.getByRole("link", { name: "quicker" }).waitFor();
  assert.deepEqual(await serious(page), []);

  // A copy of the address shows the same.
  const address = new URL(page.url());
  const other = await visit(browser, service, `jobs${address.search}`, { theme: "dark", width: 390 });
  await other.page.getByRole("link", { name: "quicker" }).waitFor();
  assert.equal(await other.page.evaluate(() => document.documentElement.scrollWidth), 390);
  assert.deepEqual(await serious(other.page), []);
  await leave(other);
  await leave(visited);
});

/** Returns what axe finds serious. */
async function serious(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  return page.evaluate(async () => {
    interface Found {
      readonly violations: readonly { impact: string; id: string; nodes: readonly { html: string }[] }[];
    }
    const { axe } = globalThis as unknown as { axe: { run(): Promise<Found> } };
    return (await axe.run()).violations
      .filter(({ impact }) => impact === "serious" || impact === "critical")
      .map(({ id, nodes }) => `${id}: ${nodes[0]?.html ?? ""}`);
  });
}
