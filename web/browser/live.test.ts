/** What the page does while the service is away, and after it came back. */
import assert from "node:assert/strict";
import { kill } from "node:process";
import { after, before, test } from "node:test";
import type { Browser, Locator, Page } from "playwright-core";
import { launch } from "./chromium.ts";
import { Feeds } from "./feed.ts";
import { Figure } from "./figures.ts";
import { reach, type Job } from "./jobs.ts";
import { leave, visit } from "./page.ts";
import { Service } from "./service.ts";

let service: Service;
let browser: Browser;
let job: Job;
const feeds = new Feeds();

before(async () => {
  [service, browser] = await Promise.all([Service.start({ slots: 1, allow: feeds.folder }), launch()]);
  job = await feeds.submit(service, "feed", { until: 40 });
  await reach(service, job.id, "running");
});

after(async () => {
  await browser?.close();
  await service?.stop();
  feeds.remove();
});

test("the API dies and comes back: a banner, then no gap and no duplicate", async () => {
  const visited = await visit(browser, service, `jobs/${job.id}`);
  const { page, context } = visited;
  const chart = new Figure(page, "train/loss");
  await chart.reaches(40);
  const logs = await context.newPage();
  await logs.goto(`${service.url}/jobs/${job.id}?tab=logs`);
  await logs.getByText("line 40 of the feed").waitFor();
  let goal = 40;
  for (let kills = 0; kills < 3; kills++) {
    feeds.goal("feed", (goal += 100));
    kill(service.facts.processes["api"] ?? 0, "SIGKILL");
    await Promise.all([page, logs].map((tab) => banner(tab).waitFor()));
    feeds.goal("feed", (goal += 20));
    await Promise.all([page, logs].map((tab) => banner(tab).waitFor({ state: "detached" })));
    feeds.goal("feed", (goal += 30));
    await chart.reaches(goal);
    await logs.getByText(`line ${goal} of the feed`).waitFor();
  }
  const expected = Array.from({ length: goal }, (_, i) => i + 1);
  const steps = (await chart.rows()).map((row) => Number(row["step"]));
  assert.deepEqual(steps, expected);
  assert.deepEqual(await linesUpwards(logs), expected);
  await leave(visited);
});

test("a curve and a log that are opened while the stream breaks have everything", async () => {
  const visited = await visit(browser, service);
  const { page } = visited;
  await page.getByText("feed").first().waitFor();
  feeds.goal("feed", 700);
  kill(service.facts.processes["api"] ?? 0, "SIGKILL");
  await banner(page).waitFor();
  await banner(page).waitFor({ state: "detached" });
  await page.getByText("feed").first().click();
  const chart = new Figure(page, "train/loss");
  await chart.reaches(700);
  const steps = (await chart.rows()).map((row) => Number(row["step"]));
  assert.deepEqual(
    steps,
    Array.from({ length: 700 }, (_, i) => i + 1),
  );
  await leave(visited);
});

test("a page whose files do not come says so, and loads when asked again", async () => {
  const visited = await visit(browser, service);
  const { page } = visited;
  await page.getByText("feed").first().waitFor();
  await page.route(/assets\/Jobs-/, (route) => route.abort());
  await page.getByRole("link", { name: "Jobs", exact: true }).click();
  await page.getByText("This page did not load").waitFor();
  await page.unroute(/assets\/Jobs-/);
  await page.getByRole("link", { name: "Reload" }).click();
  await page.locator("main [data-row]").first().waitFor();
  await leave(visited);
});

function banner(page: Page): Locator {
  return page.getByRole("alert").filter({ hasText: /The page shows its last state|interrupted/ });
}

/** Returns the lines of the whole log, read from its end to its beginning as a person does who pages up. */
async function linesUpwards(page: Page): Promise<readonly number[]> {
  const log = page.getByRole("log");
  await log.focus();
  const found = new Set<number>();
  for (;;) {
    const shown = await log
      .locator("[data-line] .text")
      .evaluateAll((lines) => lines.map((line) => Number(/line (\d+) of/.exec(line.textContent)?.[1])));
    const [first = 0] = shown;
    assert.deepEqual(
      shown,
      shown.map((_, i) => first + i),
    );
    for (const line of shown) found.add(line);
    if (first <= 1) return [...found].sort((a, b) => a - b);
    await page.keyboard.press("PageUp");
    await page.waitForFunction(
      (before) => !document.querySelector("[data-line] .text")?.textContent.includes(before),
      `line ${first} of`,
    );
  }
}
