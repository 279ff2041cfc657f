/** Submitting from the page, by keys alone, against a real service. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launch } from "./chromium.ts";
import { dropFolder, leave, visit } from "./page.ts";
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
  await page.getByText("Starts now.").waitFor();
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
  await page.getByText("Starts now.").waitFor();
  await page.keyboard.press("Control+Enter");
  await page.getByRole("heading", { name: "by-keys" }).waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("j");
  await page.getByRole("link", { name: "by-keys" }).waitFor();
  await leave(visited);
});

test("a sweep is submitted by 18 keys from the loaded page, and cloned", async () => {
  const visited = await visit(browser, service);
  const { page } = visited;
  let keys = 0;
  const press = async (...all: string[]): Promise<void> => {
    for (const key of all) await page.keyboard.press(key);
    keys += all.length;
  };
  await press("g", "u");
  await page.getByText("Starts now.").waitFor();
  await press("/", "l", "r", "Enter", ..."0.1, 0.01");
  await page.getByText("must be a number.").waitFor();
  await press("Tab", "Enter"); // vary
  await page.getByText("2 trials").waitFor();
  await press("Control+Enter");
  await page.waitForURL(/\/sweeps\/swp_/);
  assert.equal(keys, 18);
  const id = page.url().split("/").at(-1) ?? "";
  const sweep = await service.ask<{ trials: { total: number } }>(`v1/sweeps/${id}`);
  assert.equal(sweep.trials.total, 2);
  await page.goto(`${service.url}/submit?sweep=${id}`);
  await page.getByText("2 trials").waitFor();
  assert.match(await page.locator("#yaml").inputValue(), /config\.optimizer\.lr: \[0\.1, 0\.01\]/);
  await leave(visited);
});

test("a change in the form keeps what was typed as YAML, and is taken back by Ctrl-Z in both halves", async () => {
  const visited = await visit(browser, service, "submit");
  const { page } = visited;
  const yaml = page.locator("#yaml");
  const text = "# mine\ntrainer: image-classification\nconfig:\n  training: # how long\n    epochs: 5\n";
  await yaml.fill(text);
  await page.getByLabel("lr", { exact: true }).fill("0.5");
  assert.equal(await yaml.inputValue(), `${text}  optimizer:\n    lr: 0.5\n`);
  await page.keyboard.press("Control+z");
  assert.equal(await yaml.inputValue(), text);
  assert.equal(await page.getByLabel("lr", { exact: true }).inputValue(), "");
  await yaml.focus();
  await page.keyboard.press("Control+z");
  assert.equal(await yaml.inputValue(), "trainer: image-classification\n");
  await page.keyboard.press("Control+Shift+z");
  assert.equal(await page.getByLabel("epochs", { exact: true }).inputValue(), "5");
  await leave(visited);
});

test("a double click submits one job", async () => {
  const visited = await visit(browser, service, "submit");
  const { page } = visited;
  await page.getByLabel("name", { exact: true }).fill("twice");
  await page.getByText(/^(Starts now|Waits:|Would be refused:)/).waitFor();
  await page.getByRole("button", { name: "Submit", exact: true }).dblclick();
  await page.waitForURL(/\/jobs\/job_/);
  const { data } = await service.ask<{ data: unknown[] }>("v1/jobs?q=twice");
  assert.equal(data.length, 1);
  await leave(visited);
});

test("each recipe's defaults are right, and the phone scrolls in one direction", async () => {
  const visited = await visit(browser, service, "submit", { width: 390 });
  const { page } = visited;
  const trainer = page.getByLabel("trainer", { exact: true });
  await trainer.waitFor();
  for (const name of await trainer.locator("option").allInnerTexts()) {
    await trainer.selectOption(name);
    for (const required of ["data.source", "model.weights", "code"]) {
      const field = page.getByLabel(required, { exact: true });
      if ((await field.count()) > 0 && (await field.getAttribute("placeholder")) === "required")
        await field.fill("file:///data");
    }
    await page.getByText(/^(Starts now|Waits:|Would be refused:)/).waitFor();
    await page
      .locator("form details")
      .evaluateAll((all) => all.forEach((each) => each.setAttribute("open", "")));
    assert.equal(await page.locator('form [aria-invalid="true"]').count(), 0);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), name);
  }
  await leave(visited);
});

test("no help lies over another one, whatever a trainer needs and one has left empty", async () => {
  const visited = await visit(browser, service, "submit");
  const { page } = visited;
  for (const trainer of ["script", "segmentation", "causal-lm"]) {
    await page.getByLabel("trainer", { exact: true }).selectOption(trainer);
    await page.keyboard.press("Control+Enter");
    await page.getByText("is missing.").first().waitFor();
    await page.getByRole("searchbox", { name: "Find a key of the spec" }).focus();
    await page.mouse.move(0, 0);
    const bottoms = await page
      .locator(".about p")
      .evaluateAll((all) =>
        all.map((each) => each.getBoundingClientRect()).map(({ top, bottom }) => ({ top, bottom })),
      );
    const over = bottoms.filter(({ top }, at) => at > 0 && top < (bottoms[at - 1]?.bottom ?? 0));
    assert.deepEqual(over, [], trainer);
  }
  await leave(visited);
});

test("the YAML is as high as the view, and stays beside the form as the form scrolls", async () => {
  const visited = await visit(browser, service, "submit", { width: 1440, height: 900 });
  const { page } = visited;
  const yaml = page.getByRole("textbox", { name: "The same as YAML" });
  await yaml.waitFor();
  await page
    .locator("form details")
    .evaluateAll((all) => all.forEach((each) => each.setAttribute("open", "")));
  await page.getByRole("group", { name: "Fields" }).evaluate((each) => each.scrollTo(0, each.scrollHeight));
  const box = await yaml.boundingBox();
  assert.ok(box && box.y < 160 && box.y + box.height > 900 - 100 && box.y + box.height < 900 - 48, `${box}`);
  const over = await page.evaluate(() => document.documentElement.scrollHeight - innerHeight);
  assert.equal(over, 0);
  await leave(visited);
});

test("an upload goes on after a cut, and after the page was loaded again", async () => {
  const own = mkdtempSync(join(tmpdir(), "torchyard-dropped-"));
  writeFileSync(join(own, "a.bin"), Buffer.alloc(9 << 20, 7));
  const visited = await visit(browser, service, "submit");
  const { page } = visited;
  const source = page.getByLabel("data.source", { exact: true });
  const offsets: string[] = [];
  const cut = new Set(["4194304", "8388608"]); // the second piece at once, and the third one too
  await page.route(/v1\/bundles\/.*offset=/, (route) => {
    const offset = new URL(route.request().url()).searchParams.get("offset") ?? "";
    offsets.push(offset);
    return cut.has(offset) && (offset === "8388608" || cut.delete(offset)) ? route.abort() : route.continue();
  });
  await source.waitFor();
  await dropFolder(source, own);
  await page.getByRole("button", { name: "Upload", exact: true }).click();
  await page.getByText("The service does not answer.").waitFor();
  await page.getByText("8.0 MiB of 9.0 MiB sent").waitFor();
  page.once("dialog", (dialog) => void dialog.accept()); // it asks whether to leave
  await page.reload();
  cut.clear();
  await source.waitFor();
  offsets.length = 0;
  await dropFolder(source, own);
  await page.getByRole("button", { name: "Upload", exact: true }).click();
  await page.getByRole("region", { name: "Upload of the folder" }).waitFor({ state: "hidden" });
  assert.match(await source.inputValue(), /^bundle:sha256:/);
  assert.deepEqual(offsets, ["8388608"]);
  rmSync(own, { recursive: true });
  await leave(visited);
});
