/** A log of a million lines, and one that grows while somebody reads further up. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { launch } from "./chromium.ts";
import { Feeds } from "./feed.ts";
import { reach, submit, type Job } from "./jobs.ts";
import { leave, visit } from "./page.ts";
import { Service } from "./service.ts";

const LINES = 1_000_000;
const PROGRAM = `
import sys
for thousand in range(${LINES / 1000}):
    sys.stdout.write("".join(f"line {1000 * thousand + i} of a million\\n" for i in range(1, 1001)))
`;

const BAR = `
import pathlib, time
print("starts")
print("\\r  1% loss=2.5", end="", flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.05)
print("\\r 99% loss=0.2\\r100% loss=0.1", flush=True)
`;

let service: Service;
let browser: Browser;
let long: Job;
let grows: Job;
const feeds = new Feeds();
const code = mkdtempSync(join(tmpdir(), "torchyard-code-"));

before(async () => {
  writeFileSync(join(code, "train.py"), PROGRAM);
  [service, browser] = await Promise.all([
    Service.start({ slots: 2, allow: `${feeds.folder}:${code}` }),
    launch(),
  ]);
  grows = await feeds.submit(service, "grows", { until: 400 });
  long = await submit(service, {
    name: "long",
    trainer: "script",
    config: { code: `file://${code}`, entrypoint: "train.py" },
    resources: { device: "cpu" },
  });
  await Promise.all([reach(service, long.id, "succeeded"), reach(service, grows.id, "running")]);
});

after(async () => {
  await browser?.close();
  await service?.stop();
  feeds.remove();
  rmSync(code, { recursive: true });
});

test("line 900,000 of a million is shown and highlighted, with its neighbours", async () => {
  const visited = await visit(browser, service, `jobs/${long.id}?tab=logs&line=900000`);
  const { page } = visited;
  const chosen = page.locator(".line.chosen", { hasText: "line 900000 of a million" });
  await chosen.waitFor();
  assert.equal(await chosen.getAttribute("data-line"), "900000");
  assert.ok(await isWithinLog(page, 900_000));
  const plain = page.locator('.line[data-line="900001"]');
  const [marked, other] = await Promise.all(
    [chosen, plain].map((line) => line.evaluate((element) => getComputedStyle(element).backgroundColor)),
  );
  assert.notEqual(marked, other);
  await page.getByRole("log").focus();
  await page.keyboard.press("Home");
  await page.locator('.line[data-line="1"]').waitFor();
  await page.keyboard.press("End");
  await page.locator(`.line[data-line="${LINES}"]`).waitFor();
  await leave(visited);
});

test("a search goes from match to match, each in its context", async () => {
  const visited = await visit(browser, service, `jobs/${long.id}?tab=logs`);
  const { page } = visited;
  await page.getByRole("searchbox", { name: "Search the log" }).fill("99999 of a");
  await page.locator(".count", { hasText: /^10$/ }).waitFor();
  for (const line of [99_999, 199_999, 299_999]) {
    await page.getByRole("button", { name: "Next match" }).click();
    await page.locator(`.line.chosen[data-line="${line}"] .hit`).waitFor();
    await page.locator(`.line[data-line="${line - 1}"]`).waitFor();
    await page.locator(`.line[data-line="${line + 1}"]`).waitFor();
    assert.ok(await isWithinLog(page, line));
  }
  await page.getByRole("button", { name: "Previous match" }).click();
  await page.locator('.line.chosen[data-line="199999"] .hit').waitFor();
  await page.getByLabel("only matches").check();
  await page.locator('.line[data-line="999999"]').waitFor();
  assert.equal(await page.locator(".line").count(), 10);
  await leave(visited);
});

test("who scrolls up keeps the place, and reads how many lines are new", async () => {
  const visited = await visit(browser, service, `jobs/${grows.id}?tab=logs`);
  const { page } = visited;
  await page.locator('.line[data-line="400"]').waitFor();
  await page.getByRole("log").hover();
  await page.mouse.wheel(0, -1800);
  await page.getByRole("button", { name: "to the end" }).waitFor();
  const first = await place(page);
  assert.ok(first.line < 320, JSON.stringify(first));
  feeds.goal("grows", 700);
  await page.getByRole("button", { name: "300 new" }).waitFor();
  assert.deepEqual(await place(page), first);
  await page.getByRole("button", { name: "300 new" }).click();
  await page.locator('.line[data-line="700"]').waitFor();
  feeds.goal("grows", 800);
  await page.locator('.line[data-line="800"]').waitFor();
  assert.ok(await isWithinLog(page, 800));
  await leave(visited);
});

test("a progress bar is shown in its place as the last line, and stored once", async () => {
  writeFileSync(join(code, "bar.py"), BAR);
  const bar = await submit(service, {
    name: "bar",
    trainer: "script",
    config: { code: `file://${code}`, entrypoint: "bar.py" },
    resources: { device: "cpu" },
  });
  await reach(service, bar.id, "running");
  const visited = await visit(browser, service, `jobs/${bar.id}?tab=logs`);
  const { page } = visited;
  const unfinished = page.locator(".unfinished");
  await unfinished.filter({ hasText: "1% loss=2.5" }).waitFor();
  assert.equal(await page.locator(".line").count(), 1);
  writeFileSync(join(code, "go"), "");
  await page.locator('.line[data-line="2"]', { hasText: "100% loss=0.1" }).waitFor();
  await unfinished.waitFor({ state: "detached" });
  await leave(visited);
});

/** Returns the first line that is shown, and how far it is from the top of the window. */
async function place(page: Page): Promise<{ line: number; top: number }> {
  return page
    .locator(".line")
    .first()
    .evaluate((element) => ({
      line: Number((element as HTMLElement).dataset["line"]),
      top: element.getBoundingClientRect().top,
    }));
}

async function isWithinLog(page: Page, line: number): Promise<boolean> {
  const [box, log] = await Promise.all([
    page.locator(`.line[data-line="${line}"]`).boundingBox(),
    page.getByRole("log").boundingBox(),
  ]);
  return box !== null && log !== null && box.y >= log.y - 1 && box.y + box.height <= log.y + log.height + 1;
}
