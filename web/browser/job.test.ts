/** One job's page with real keys, while the job logs and when it fails. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launch } from "./chromium.ts";
import { Feeds } from "./feed.ts";
import { reach, submit, type Job } from "./jobs.ts";
import { leave, visit } from "./page.ts";
import { mount } from "./proxy.ts";
import { Service } from "./service.ts";

const PROGRAM = `
import pathlib, time
for number in range(1, 101):
    print(f"{number} " + "x" * (2000 if number % 2 else 1), flush=True)

def breaks(times):
    if times % 2:
        breaks(times - 1)
    elif times:
        exec("breaks(times - 1)")
    else:
        raise RuntimeError("the end of it")

while not pathlib.Path("fail").exists():
    time.sleep(0.05)
breaks(40)
`;

let service: Service;
let browser: Browser;
let grows: Job;
let fails: Job;
const feeds = new Feeds();
const code = mkdtempSync(join(tmpdir(), "torchyard-code-"));

before(async () => {
  writeFileSync(join(code, "train.py"), PROGRAM);
  [service, browser] = await Promise.all([
    Service.start({ slots: 2, allow: `${feeds.folder}:${code}` }),
    launch(),
  ]);
  grows = await feeds.submit(service, "grows", { until: 100 });
  fails = await submit(service, {
    name: "a-name-that-is-read-as-a-whole-however-narrow-the-window-of-whoever-reads-it-may-be-on-the-way-home.",
    trainer: "script",
    config: { code: `file://${code}`, entrypoint: "train.py" },
    resources: { device: "cpu" },
    max_restarts: 0,
  });
  await Promise.all([grows, fails].map((job) => reach(service, job.id, "running")));
});

after(async () => {
  feeds.stop();
  await browser?.close();
  await service?.stop();
  feeds.remove();
  rmSync(code, { recursive: true });
});

test("keys alone walk the parts and the menu, share the link and stop the job, while it logs", async () => {
  feeds.keepLogging("grows", 100);
  const visited = await visit(browser, service, `jobs/${grows.id}`);
  const { page } = visited;
  await page.getByRole("heading", { name: "grows" }).waitFor();
  await page.keyboard.press("]");
  await page.locator(".line").first().waitFor();
  await page.keyboard.press("[");
  await page.locator("canvas").first().waitFor();
  await tabTo(page, "More");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("s"); // within the menu: the next item that begins with it
  assert.match((await focused(page)) ?? "", /^Show stacks/);
  await page.keyboard.press("Enter");
  await page.locator(".own", { hasText: "feed.py" }).first().waitFor();
  assert.match((await focused(page)) ?? "", /^More/);
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
  assert.equal(await page.getByRole("menu").count(), 0);
  assert.match((await focused(page)) ?? "", /^More/);
  await page.keyboard.press("s");
  await page.getByText("Stopping grows.").waitFor();
  await page.keyboard.press("z");
  await page.getByText("Stopping grows.").waitFor({ state: "detached" });
  await page.getByLabel("Who can read it").selectOption("team");
  await page.getByRole("status").getByText("Everyone with an account").waitFor();
  assert.equal((await service.ask<{ visibility: string }>(`v1/jobs/${grows.id}`)).visibility, "team");
  await leave(visited);
});

test("long lines wrap up to the last one, and what one selects or copies is the text alone", async () => {
  const visited = await visit(browser, service, `jobs/${fails.id}?tab=logs&wrap=1`);
  const { page } = visited;
  const last = page.locator('.line[data-line="100"]');
  await last.waitFor();
  const [box, log] = await Promise.all([last.boundingBox(), page.getByRole("log").boundingBox()]);
  assert.ok(box && log && box.y + box.height <= log.y + log.height + 1, JSON.stringify([box, log]));
  const long = await page.locator('.line[data-line="99"]').boundingBox();
  assert.ok(long && long.height > 100 && long.width <= (log?.width ?? 0));
  await page.getByRole("log").focus();
  await page.keyboard.press("ArrowUp");
  await page.getByRole("button", { name: "to the end" }).waitFor();
  await page.keyboard.press("Home");
  await page.locator('.line[data-line="2"] button').click();
  await page.locator('.line[data-line="4"] button').click({ modifiers: ["Shift"] });
  assert.equal(await page.locator(".line.chosen").count(), 3);
  await page.getByRole("button", { name: "Copy lines 2–4" }).click();
  await page.getByRole("status").getByText("Copied", { exact: true }).waitFor();
  await page.getByRole("searchbox", { name: "Search the log" }).focus();
  await page.keyboard.press("Control+v");
  const pasted = await page.getByRole("searchbox", { name: "Search the log" }).inputValue();
  assert.match(pasted, /^2 x ?3 x{2000} ?4 x ?$/);
  await page.getByRole("searchbox", { name: "Search the log" }).fill("");
  const line = page.locator('.line[data-line="2"]');
  await line.waitFor();
  await line.evaluate((element) => getSelection()?.selectAllChildren(element));
  assert.equal((await page.evaluate(() => getSelection()?.toString() ?? "")).trim(), "2 x");
  await leave(visited);
});

test("a job that fails while one looks shows its traceback, with one's own code marked, and its whole name", async () => {
  const visited = await visit(browser, service, `jobs/${fails.id}`, { width: 390 });
  const { page } = visited;
  const name = page.getByRole("heading", { name: fails.name });
  await name.waitFor();
  await page.getByRole("button", { name: "Stop", exact: true }).waitFor();
  writeFileSync(join(code, "fail"), "");
  await page.locator(".own", { hasText: "train.py" }).first().waitFor();
  const trace = page.locator("pre", { hasText: "RuntimeError: the end of it" });
  await trace.waitFor();
  const [raised, seen] = await Promise.all([trace.locator(".own").last().boundingBox(), trace.boundingBox()]);
  assert.ok(raised && seen && raised.y >= seen.y && raised.y + raised.height <= seen.y + seen.height);
  await page.getByRole("link", { name: "Clone" }).waitFor();
  assert.ok(await name.evaluate((element) => element.scrollWidth <= element.clientWidth));
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  await leave(visited);
});

test("on a phone the head is short, its parts are one row, and who can read the job is quiet until one is near", async () => {
  const visited = await visit(browser, service, `jobs/${grows.id}?tab=card`, { width: 390 });
  const { page } = visited;
  const tabs = page.getByRole("navigation", { name: "Parts of the job" });
  await tabs.waitFor();
  const [row, name, menu, facts, last] = await Promise.all(
    [
      tabs,
      page.locator("h1"),
      page.getByRole("button", { name: /^More/ }),
      page.locator(".facts"),
      tabs.getByText("card"),
    ].map(async (part) => (await part.boundingBox()) ?? assert.fail()),
  );
  assert.ok(row && name && menu && facts && last);
  assert.ok(row.height < 40 && row.y - name.y < 160, JSON.stringify({ row, name }));
  assert.ok(menu.y + menu.height <= facts.y, JSON.stringify({ menu, facts }));
  assert.ok(last.x >= 0 && last.x + last.width <= 390 - 24, JSON.stringify(last)); // the last part is in sight, and does not fade
  await page.keyboard.press("]");
  await page.waitForURL((address) => !address.search.includes("tab="));
  assert.equal(await tabs.evaluate((element) => element.scrollLeft), 0);
  const readers = page.getByLabel("Who can read it");
  const edge = (): Promise<string> => readers.evaluate((element) => getComputedStyle(element).borderTopColor);
  const quiet = await edge();
  await readers.focus();
  assert.notEqual(await edge(), quiet);
  await leave(visited);
});

test("notes are formatted by a worker, and a text that keeps it busy is shown while the page goes on", async (t) => {
  const store = (notes: string): Promise<unknown> =>
    service.ask(`v1/jobs/${grows.id}`, { method: "PATCH", body: { notes } });
  await store("It **diverged**: see [bank.example](https://evil.example/x).");
  const proxy = await mount(service.url, "/a/b/");
  t.after(() => proxy.stop());
  const visited = await visit(browser, service, `jobs/${grows.id}`, { root: proxy.root });
  const { page } = visited;
  const notes = page.getByRole("region", { name: "Notes" });
  await notes.locator("strong", { hasText: "diverged" }).waitFor();
  await notes.getByText("(evil.example)").waitFor();
  const [worker, ...others] = page.workers();
  assert.ok(worker && others.length === 0);
  const ended = worker.waitForEvent("close");
  const attack = `${"fine\n\n".repeat(400)}${"!".repeat(60_000)}`;
  await store(attack);
  await notes.getByRole("button", { name: "more" }).click();
  await page.keyboard.press("]");
  await page.waitForURL(/tab=/);
  await notes.getByText("Shown unformatted").waitFor();
  assert.equal(await notes.locator(".plain").textContent(), attack);
  await ended;
  await leave(visited);
});

async function focused(page: Page): Promise<string | undefined> {
  return page.evaluate(() => document.activeElement?.textContent?.trim());
}

/** Presses Tab until what begins with this text has the focus. */
async function tabTo(page: Page, text: string): Promise<void> {
  for (let presses = 0; presses < 40; presses++) {
    await page.keyboard.press("Tab");
    if ((await focused(page))?.startsWith(text)) return;
  }
  assert.fail(`Tab does not reach ${text}`);
}
