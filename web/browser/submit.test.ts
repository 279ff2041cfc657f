/** Submitting from the page, by keys alone, against a real service. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launch } from "./chromium.ts";
import { leave, visit } from "./page.ts";
import { Service } from "./service.ts";

let service: Service;
let browser: Browser;

before(async () => {
  [service, browser] = await Promise.all([Service.start(), launch()]);
});

after(async () => {
  await browser?.close();
  await service?.stop();
});

/** Opens the form by its keys, and waits until the service has answered for it. */
async function open(page: Page): Promise<void> {
  await page.keyboard.press("g");
  await page.keyboard.press("u");
  await page.getByText("It would start at once.").waitFor();
}

/** Goes on by Tab until a field has the focus. */
async function reach(page: Page, name: string): Promise<void> {
  for (let presses = 0; presses < 80; presses++) {
    const label = await page.evaluate(() => {
      const focused = document.activeElement;
      return focused instanceof HTMLInputElement ? (focused.labels?.[0]?.textContent ?? "").trim() : "";
    });
    if (label === name) return;
    await page.keyboard.press("Tab");
  }
  throw new Error(`no Tab leads to ${name}`);
}

test("digits are submitted by the keyboard alone, and a bad value is said at once", async () => {
  const visited = await visit(browser, service);
  const { page } = visited;
  await open(page);
  await reach(page, "name");
  await page.keyboard.type("by-keys");
  await reach(page, "epochs");
  await page.keyboard.type("0");
  await page.getByText("must be at least 1.").waitFor();
  await page.keyboard.press("Control+Enter");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "field-config.training.epochs");
  await page.keyboard.press("Control+a");
  await page.keyboard.type("1");
  await page.getByText("It would start at once.").waitFor();
  await page.keyboard.press("Control+Enter");
  await page.getByRole("heading", { name: "by-keys" }).waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("j");
  await page.getByRole("link", { name: "by-keys" }).waitFor();
  await leave(visited);
});

test("a sweep of two values is submitted, and its job cloned", async () => {
  const visited = await visit(browser, service);
  const { page } = visited;
  await open(page);
  const lr = page.locator(".row", { has: page.getByText("lr", { exact: true }) });
  await lr.getByRole("button", { name: "vary" }).click();
  await page.keyboard.press("Control+a");
  await page.keyboard.type("0.1, 0.01");
  await page.getByText("2 trials").waitFor();
  await page.keyboard.press("Control+Enter");
  await page.waitForURL(/\/sweeps\/swp_/);
  const id = page.url().split("/").at(-1) ?? "";
  const sweep = await service.ask<{ trials: { total: number } }>(`v1/sweeps/${id}`);
  assert.equal(sweep.trials.total, 2);
  await page.goto(`${service.url}/submit?sweep=${id}`);
  await page.getByText("2 trials").waitFor();
  assert.match(await page.locator("#yaml").inputValue(), /config\.optimizer\.lr: \[0\.1, 0\.01\]/);
  await leave(visited);
});

test("each recipe's defaults are right, and the phone scrolls in one direction", async () => {
  const visited = await visit(browser, service, "submit", { width: 390 });
  const { page } = visited;
  const trainer = page.getByLabel("trainer", { exact: true });
  await trainer.waitFor();
  for (const name of await trainer.locator("option").allInnerTexts()) {
    await trainer.selectOption(name);
    for (const required of ["data.source", "code"]) {
      const field = page.getByLabel(required, { exact: true });
      if ((await field.count()) > 0 && (await field.getAttribute("placeholder")) === "required")
        await field.fill("file:///data");
    }
    await page.getByText(/^It would /).waitFor();
    await page
      .locator("form details")
      .evaluateAll((all) => all.forEach((each) => each.setAttribute("open", "")));
    assert.equal(await page.locator('form [aria-invalid="true"]').count(), 0);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), name);
  }
  await leave(visited);
});
