/** Pages of jobs that log while somebody reads them: nothing waits until a job is silent, and nothing is lost. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser } from "playwright-core";
import { launch } from "./chromium.ts";
import { Feeds } from "./feed.ts";
import { Figure } from "./figures.ts";
import { reach, type Job } from "./jobs.ts";
import { leave, visit } from "./page.ts";
import { Service } from "./service.ts";

let service: Service;
let browser: Browser;
let busy: Job;
let other: Job;
const feeds = new Feeds();

before(async () => {
  [service, browser] = await Promise.all([Service.start({ slots: 2, allow: feeds.folder }), launch()]);
  busy = await feeds.submit(service, "busy", { until: 2400, kept: 100 });
  other = await feeds.submit(service, "other", { until: 20 });
  await Promise.all([busy, other].map((job) => reach(service, job.id, "running")));
  feeds.keepLogging("busy", 2400);
  feeds.keepLogging("other", 20);
});

after(async () => {
  feeds.stop();
  await browser?.close();
  await service?.stop();
  feeds.remove();
});

test("the table of a comparison keeps every value, and each follows its job", async () => {
  const visited = await visit(browser, service, `compare?jobs=${busy.id},${other.id}`);
  const { page } = visited;
  await page.locator("tbody tr").nth(1).waitFor();
  const seen = await page.evaluate(
    ({ changes, keys }) =>
      new Promise<string[][]>((done) => {
        const found: string[][] = [];
        const look = (): void => {
          const names = [...document.querySelectorAll("thead th")].map((cell) => cell.textContent);
          const cells = [...document.querySelectorAll("tbody tr")][1]?.children;
          found.push(keys.map((key) => cells?.[names.indexOf(key)]?.textContent ?? "—"));
          if (new Set(found.map(([first]) => first)).size > changes) done(found);
        };
        const table = document.querySelector("table")?.parentElement;
        if (table)
          new MutationObserver(look).observe(table, { subtree: true, childList: true, characterData: true });
      }),
    { changes: 12, keys: ["train/loss", "train/wild", "train/zero"] },
  );
  assert.deepEqual(
    seen.filter((values) => values.includes("—")),
    [],
  );
  assert.ok(new Set(seen.map(([, second]) => second)).size > 3, JSON.stringify(seen));
  await leave(visited);
});

test("a job that resumes gets its seam while it goes on logging", async () => {
  const visited = await visit(browser, service, `jobs/${busy.id}`);
  const chart = new Figure(visited.page, "train/loss");
  await chart.root.locator('.host[aria-label*=" at step "]').waitFor();
  await service.ask(`v1/jobs/${busy.id}/pause`, { method: "POST" });
  await reach(service, busy.id, "paused");
  await service.ask(`v1/jobs/${busy.id}/resume`, { method: "POST" });
  await reach(service, busy.id, "running");
  await chart.root.locator('.host[aria-label*="Attempt 2 resumed at step 100."]').waitFor();
  await leave(visited);
});

for (const isRegex of [false, true])
  test(`a search for ${isRegex ? "an expression" : "a text"} has all matches, and follows the log`, async () => {
    const visited = await visit(browser, service, `jobs/${busy.id}?tab=logs`);
    const { page } = visited;
    await page.getByRole("log").getByText("of the feed").first().waitFor();
    await page.getByRole("checkbox", { name: "regex" }).setChecked(isRegex);
    await page.getByRole("searchbox", { name: "Search the log" }).fill(isRegex ? "line \\d+ of" : "line ");
    const count = page.locator(".count");
    await count.filter({ hasText: /^[2-9],\d{3}$/ }).waitFor();
    const before = await count.innerText();
    await page.getByRole("checkbox", { name: "only matches" }).check();
    await page.waitForFunction((text) => document.querySelector(".count")?.textContent !== text, before);
    await page.locator(".line .hit").first().waitFor();
    const last = await page.locator(".line").last().innerText();
    await page.waitForFunction(
      (text) => ![...document.querySelectorAll(".line")].some((line) => line.textContent.includes(text)),
      /line \d+ of/.exec(last)?.[0] ?? last,
    );
    await leave(visited);
  });

test("a search that takes long is stopped and goes on", async () => {
  const visited = await visit(browser, service, `jobs/${busy.id}?tab=logs`);
  const { page } = visited;
  let answers = 0;
  let release: () => void = () => undefined;
  const held = new Promise<void>((go) => (release = go));
  await page.route(/logs\/search/, async (route) => {
    answers += 1;
    if (answers === 2) await held;
    await route.continue().catch(() => undefined);
  });
  await page.getByRole("searchbox", { name: "Search the log" }).fill("of the feed");
  await page.locator(".count", { hasText: /^1,000\+ in \d+% of the log$/ }).waitFor();
  await page.getByRole("search").getByRole("button", { name: "Stop" }).click();
  release();
  await page.getByRole("search").getByRole("button", { name: "Continue" }).click();
  await page.locator(".count", { hasText: /^[2-9],\d{3}$/ }).waitFor();
  await leave(visited);
});

test("Escape empties a field and takes its filter back", async () => {
  const visited = await visit(browser, service);
  const { page } = visited;
  const fields = [
    { path: "jobs", name: "Find jobs by name, id, owner, label or notes", key: "q" },
    { path: `jobs/${other.id}?tab=curves`, name: "Filter keys", key: "filter" },
    { path: `jobs/${other.id}?tab=logs`, name: "Search the log", key: "q" },
  ];
  for (const { path, name, key } of fields) {
    await page.goto(`${service.url}/${path}`);
    const field = page.getByRole("searchbox", { name });
    await field.fill("nothing has this");
    await page.waitForURL(new RegExp(`[?&]${key}=`));
    await page.keyboard.press("Escape");
    await page.waitForURL((address) => !address.searchParams.has(key));
    assert.equal(await field.inputValue(), "");
  }
  await page.goto(`${service.url}/compare`);
  const picker = page.getByRole("combobox", { name: "Add a job" });
  await picker.fill("bus");
  await page.getByRole("option", { name: /busy/ }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("listbox").waitFor({ state: "detached" });
  assert.equal(await picker.inputValue(), "");
  await leave(visited);
});
