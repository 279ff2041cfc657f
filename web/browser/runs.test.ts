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

test("an address with odd, unknown and too many columns shows the table of those that are some", async () => {
  const many = Array.from({ length: 200 }, (_, at) => `config.key_${at}`);
  const odd = [
    "__proto__",
    "constructor",
    "config.__proto__",
    "metric:<b>:best",
    "label:a b",
    "metric:x:avg",
  ];
  const columns = [...odd, ...many].map((name) => name.replaceAll(",", "%2C")).join(",");
  const query = new URLSearchParams({ columns, sort: "-constructor", group: "__proto__", open: "%E0%A4" });
  const visited = await visit(browser, service, `jobs?${query.toString()}`);
  const { page } = visited;
  await page.getByRole("link", { name: "slow" }).waitFor();
  const heads = await page.getByRole("columnheader").allTextContents();
  assert.equal(heads.length, 3 + 30); // the check, the state, the name, and the most columns that are answered
  assert.deepEqual(
    heads.slice(3, 7).map((text) => text.trim()),
    ["__proto__", "constructor", "config.__proto__", "<b> best"],
  );
  const cells = page.getByRole("row", { name: /slow/ }).getByRole("cell");
  assert.deepEqual(
    (await cells.allTextContents()).slice(3).map((text) => text.trim()),
    Array(30).fill(""),
  );
  await leave(visited);
});

test("each part of the table has its role, and a row its place", async () => {
  const visited = await visit(browser, service, "jobs?columns=owner,age");
  const table = visited.page.getByRole("table");
  await table.getByRole("row", { name: /slow/ }).waitFor();
  assert.equal(await table.getAttribute("aria-rowcount"), "4");
  assert.deepEqual(
    await table.getByRole("row").evaluateAll((rows) => rows.map((row) => row.getAttribute("aria-rowindex"))),
    ["1", "2", "3", "4"],
  );
  assert.equal(await table.getByRole("row", { name: /slow/ }).getByRole("cell").count(), 5);
  await leave(visited);
});

test("a label of a job that somebody else deletes meanwhile is lost with its row, and the page says why", async () => {
  const gone = await submit(service, {
    ...digits("gone"),
    resources: { device: "cpu", devices_per_node: 9 },
  });
  const visited = await visit(browser, service, "jobs?columns=labels");
  const { page } = visited;
  await page.getByRole("button", { name: "Labels of gone: none" }).press("Enter");
  const field = page.getByRole("textbox", { name: "Labels of gone" });
  await field.fill("team=roads");
  await page.route("**/v1/jobs/actions", async (route) => {
    await service.ask(`v1/jobs/${gone.id}/cancel`, { method: "POST" });
    await service.ask(`v1/jobs/${gone.id}`, { method: "DELETE" });
    await route.continue();
  });
  await page.keyboard.press("Enter");
  await page
    .getByRole("alert")
    .getByText(/there is no job/)
    .waitFor();
  await page.getByRole("link", { name: "gone", exact: true }).waitFor({ state: "detached" });
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
