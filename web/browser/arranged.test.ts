/** Charts as one arranges them: by keys alone, by fingers, and found again in another browser. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launch } from "./chromium.ts";
import { Figure } from "./figures.ts";
import { digits, reach, submit, type Job } from "./jobs.ts";
import { leave, visit } from "./page.ts";
import { Service } from "./service.ts";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
let service: Service;
let browser: Browser;
let job: Job;

before(async () => {
  [service, browser] = await Promise.all([Service.start({ slots: 1 }), launch()]);
  job = await submit(service, digits("digits"));
  await reach(service, job.id, "succeeded");
});

after(async () => {
  await browser?.close();
  await service?.stop();
});

test("by keys alone: a section folds, a chart is pinned, all zoom and pan; another browser finds it so", async () => {
  const visited = await visit(browser, service, `jobs/${job.id}`);
  const { page } = visited;
  const loss = new Figure(page, "val/loss");
  await loss.root.locator('.host[aria-label*="val"]').waitFor();
  assert.equal(await loss.root.getAttribute("data-keys"), "train/loss val/loss");
  const head = await loss.root.locator("figcaption").boundingBox();
  assert.ok(head && head.height < 30, "name, legend and menu are in one line");
  await loss.point(0.5);
  await loss.root.locator(".readout", { hasText: /val.*train|train.*val/s }).waitFor();
  await page.mouse.move(0, 0);
  await page.getByRole("button", { name: /^time \d/ }).focus();
  await page.keyboard.press("Enter");
  await page.waitForURL(/folded=time/);
  await page.keyboard.press("Alt+ArrowUp");
  await page.waitForURL(/sections=/);
  await page.getByRole("button", { name: "Actions of train/grad_norm" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("menu").waitFor();
  assert.deepEqual(await faultsOf(page), []);
  for (let i = 0; i < 3; i++) await page.keyboard.press("ArrowDown");
  const kept = page.waitForResponse(
    (answer) => answer.ok() && Boolean(answer.request().postData()?.includes("train/grad_norm")),
  );
  await page.keyboard.press("Enter");
  await page.waitForURL(/pinned=train%2Fgrad_norm/);
  const [, whole] = await loss.range();
  await page.keyboard.press("+");
  await page.keyboard.press("+");
  await page.waitForURL(/zoom=/);
  await loss.root.getByRole("button", { name: /^Actions of/ }).focus();
  await page.keyboard.press("ArrowRight");
  await page.waitForFunction(
    (end) => Number(document.querySelector("figure")?.dataset["to"]) > end,
    0.65 * whole,
  );
  await page.keyboard.press("0");
  await page.waitForFunction((end) => document.querySelector("figure")?.dataset["to"] === String(end), whole);
  await kept;
  await leave(visited);
  const other = await visit(browser, service, `jobs/${job.id}`);
  await other.page.waitForURL(/folded=time.*pinned=train%2Fgrad_norm/);
  await other.page
    .getByRole("region", { name: "Monitored metric · Pinned" })
    .locator('figure[aria-label="train/grad_norm"]')
    .waitFor();
  assert.equal(
    await other.page.getByRole("button", { name: /^time \d/ }).getAttribute("aria-expanded"),
    "false",
  );
  await leave(other);
});

test("a chart is made when it comes into sight, so that hundreds of them cost nothing", async () => {
  const visited = await visit(browser, service, `jobs/${job.id}`, { width: 390, height: 700 });
  const { page } = visited;
  await page.locator("figure canvas").first().waitFor();
  const last = page.locator("figure").last();
  assert.equal(await last.locator("canvas").count(), 0);
  await last.scrollIntoViewIfNeeded();
  await last.locator('.host[aria-label*=" at step "]').waitFor();
  assert.equal(await last.locator("canvas:not(.over)").count(), 1);
  await leave(visited);
});

test("two fingers zoom, and the page scrolls by a finger on a chart", async () => {
  const visited = await visit(browser, service, `jobs/${job.id}`, { width: 390, height: 700, touch: true });
  const { page } = visited;
  const chart = new Figure(page, "val/loss");
  await chart.root.locator('.host[aria-label*="val"]').waitFor();
  const devtools = await visited.context.newCDPSession(page);
  const over = chart.root.locator(".u-over");
  /** Puts the chart in the middle of the screen, where the controls above it have moved it. */
  const seen = async (): Promise<{ x: number; y: number; width: number; height: number }> => {
    await over.evaluate((element) => element.scrollIntoView({ block: "center" }));
    const found = await over.boundingBox();
    assert.ok(found);
    return found;
  };
  let box = await seen();
  const touch = (type: string, ...fingers: readonly [number, number][]): Promise<unknown> =>
    devtools.send("Input.dispatchTouchEvent", {
      type: type as "touchStart",
      touchPoints: fingers.map(([x, y], id) => ({ x: box.x + x * box.width, y: box.y + y * box.height, id })),
    });
  await touch("touchStart", [0.4, 0.5], [0.6, 0.5]);
  for (const share of [0.65, 0.7, 0.75, 0.8]) await touch("touchMove", [0.4, 0.5], [share, 0.5]);
  await touch("touchEnd");
  await page.waitForURL(/zoom=/);
  await page.getByRole("button", { name: "Reset zoom" }).click();
  await page.waitForURL((url) => !url.search.includes("zoom"));
  box = await seen();
  const [before] = await Promise.all([page.evaluate(() => scrollY), touch("touchStart", [0.5, 0.5])]);
  for (const share of [0.45, 0.3, 0.15, 0, -0.1]) await touch("touchMove", [0.5, share]);
  await touch("touchEnd");
  await page.waitForFunction((least) => scrollY > least, before + 100);
  assert.ok(!page.url().includes("zoom"));
  await leave(visited);
});

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
