/** Every page for everybody, at the width of a desk and of a phone, in both themes, with a search active. */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launch } from "./chromium.ts";
import { digits, reach, submit, type Job } from "./jobs.ts";
import { freshContext, leave, visit } from "./page.ts";
import { Service } from "./service.ts";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const DESK = { width: 1440, height: 900 };
const PHONE = { width: 390, height: 844 };
const LEAST_PX = 32;
/** A theme changes colours alone. */
const RULES = { light: {}, dark: { runOnly: ["color-contrast"] } } as const;
const CHARTS = 12;
const DOCS = ["", "reference/commands.html", "reference/python.html", "search.html?q=checkpoint"].map(
  (path) => `docs/${path}`,
);
/** Enter, arrows and letters do the rest: a chart is one stop, and its menu another. */
const MOST_STOPS = 60;

const PROGRAM = `
import time
import torchyard

run = torchyard.init()
step = 0
while not run.should_stop():
    step += 1
    run.log({f"layers/{number}": number / step for number in range(${CHARTS})}, step=step)
    print(f"step {step}", flush=True)
    time.sleep(0.05)
`;

let service: Service;
let browser: Browser;
let trained: Job;
let failed: Job;
let runs: Job;
let waits: Job;
let sweep: { readonly id: string };
let worker: string;
const code = { breaks: folder("raise SystemExit('no such file: data.csv')"), logs: folder(PROGRAM) };

function folder(program: string): string {
  const made = mkdtempSync(join(tmpdir(), "torchyard-code-"));
  writeFileSync(join(made, "train.py"), program);
  return made;
}

const script = (name: string, from: string): Record<string, unknown> => ({
  name,
  trainer: "script",
  max_restarts: 0,
  labels: { team: "vision" },
  config: { code: `file://${from}`, entrypoint: "train.py" },
  resources: { device: "cpu" },
});

before(async () => {
  const allow = [code.breaks, code.logs].join(":");
  const settings = { TORCHYARD_VISIBILITY: "team" };
  [service, browser] = await Promise.all([Service.start({ slots: 2, allow, settings }), launch()]);
  trained = await submit(service, digits("cracks-unet"));
  failed = await submit(service, script("breaks", code.breaks));
  await Promise.all([reach(service, trained.id, "succeeded"), reach(service, failed.id, "failed")]);
  const kept = { name: "cracks-unet", from: `${trained.id}/best` };
  await service.ask("v1/models", { method: "POST", body: kept });
  runs = await submit(service, script("runs", code.logs));
  await reach(service, runs.id, "running");
  waits = await submit(service, { ...digits("waits"), resources: { device: "cpu", devices_per_node: 2 } });
  const job = { ...digits("lr"), priority: -100 };
  const varied = { name: "lr", max_parallel: 1, parameters: { "config.optimizer.lr": [0.1, 0.01] }, job };
  sweep = await service.ask("v1/sweeps", { method: "POST", body: varied });
  const yearly = { ...digits("yearly"), schedule: "0 3 1 1 *" };
  await service.ask("v1/schedules", { method: "POST", body: yearly });
  const { data } = await service.ask<{ data: { id: string }[] }>("v1/workers");
  worker = data[0]?.id ?? "";
});

after(async () => {
  await browser?.close();
  await service?.stop();
  for (const made of Object.values(code)) rmSync(made, { recursive: true });
});

function pages(): string[] {
  const tabs = [
    "curves",
    "logs",
    "media",
    "overview",
    "checkpoints",
    "artifacts",
    "code",
    "timeline",
    "spec",
    "card",
  ];
  const nothing = "0".repeat(32);
  return [
    "",
    "jobs?q=cracks",
    "jobs?as=charts",
    "jobs?q=nothing-matches",
    "jobs?group=team&starred=true",
    `jobs/job_${nothing}`,
    `sweeps/swp_${nothing}`,
    `workers/wrk_${nothing}`,
    ...tabs.map((tab) => `jobs/${trained.id}?tab=${tab}&q=epoch`),
    ...tabs.slice(0, 3).map((tab) => `jobs/${runs.id}?tab=${tab}&q=step`),
    `jobs/${failed.id}`,
    `jobs/${failed.id}?tab=logs&q=file`,
    `jobs/${waits.id}`,
    "sweeps",
    `sweeps/${sweep.id}`,
    "schedules",
    "models",
    "workers",
    `workers/${worker}`,
    ...["tokens", "sessions", "usage", "notifications", "secrets", "users", "quotas", "audit"].map(
      (section) => `settings?section=${section}`,
    ),
    "submit",
    `submit?from=${trained.id}`,
    "compare",
    "compare?q=lr",
    `compare?jobs=${trained.id},${runs.id}`,
  ];
}

test("no page has a serious fault for a screen reader, at two widths, in both themes", async () => {
  const visited = await visit(browser, service);
  const { page } = visited;
  const faults: string[] = [];
  for (const path of [...pages(), ...DOCS]) {
    await open(page, path);
    faults.push(...(await faultsEverywhere(page, path || "now")));
  }
  await open(page, "");
  for (const [key, name] of [
    ["?", "help"],
    ["Control+k", "palette"],
  ] as const) {
    await page.keyboard.press(key);
    await page.getByRole("dialog").waitFor();
    if (name === "palette") {
      await page.keyboard.type("cracks");
      await page
        .getByRole("option", { name: /cracks-unet/ })
        .first()
        .waitFor();
    }
    faults.push(...(await faultsEverywhere(page, name)));
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
  }
  await open(page, `jobs/${runs.id}`);
  await page.getByRole("button", { name: "Stop" }).focus();
  await page.getByRole("tooltip").waitFor();
  faults.push(...(await faultsEverywhere(page, "the price of a stop")));
  const stranger = await freshContext(browser);
  const login = await stranger.newPage();
  await login.goto(service.url);
  await login.getByLabel("Personal token").waitFor();
  faults.push(...(await faultsEverywhere(login, "login")));
  await stranger.close();
  assert.deepEqual([...new Set(faults)], []);
  await leave(visited);
});

test("a phone scrolls no page sideways, and what is pressed there is as high as a row and as wide", async () => {
  const visited = await visit(browser, service, "", { ...PHONE, touch: true });
  const faults: string[] = [];
  for (const path of pages()) {
    await open(visited.page, path);
    const found = await visited.page.evaluate(unfit, LEAST_PX);
    faults.push(...found.map((fault) => `${path || "now"}: ${fault}`));
  }
  for (const path of DOCS) {
    await open(visited.page, path);
    const over = await visited.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (over > 0) faults.push(`${path}: scrolls sideways by ${over} px`);
  }
  assert.deepEqual(faults, []);
  await leave(visited);
});

test("a phone reaches every page by the menu, which the next press or Escape closes", async () => {
  const visited = await visit(browser, service, "", { ...PHONE, touch: true });
  const { page } = visited;
  const menu = page.getByLabel(/^Menu of/);
  await menu.tap();
  await page.getByRole("navigation", { name: "All pages" }).getByRole("link", { name: "Models" }).tap();
  await page.getByRole("heading", { name: "Models" }).waitFor();
  assert.equal(await page.getByRole("navigation", { name: "All pages" }).isVisible(), false);
  await menu.tap();
  await page.keyboard.press("Escape");
  assert.equal(await page.getByRole("navigation", { name: "All pages" }).isVisible(), false);
  await page.getByRole("button", { name: "Find pages and jobs" }).tap();
  await page.keyboard.type("runs");
  await page
    .getByRole("option", { name: /^runs|runs/ })
    .first()
    .tap();
  await page.getByRole("heading", { name: "runs", exact: true }).waitFor();
  await leave(visited);
});

test("the help of a running job lists the keys of its parts, charts and stop, each once", async () => {
  const visited = await visit(browser, service, `jobs/${runs.id}`);
  const { page } = visited;
  await page.locator("figure").first().waitFor();
  await page.keyboard.press("?");
  const keys = await page.getByRole("dialog").locator("dt").allInnerTexts();
  assert.deepEqual(keys, [...new Set(keys)]);
  for (const key of ["[", "]", "+", "-", "0", "s", "p"])
    assert.ok(keys.includes(key), `${key} in ${keys.join(" ")}`);
  await page.keyboard.press("Escape");
  await page.keyboard.press("]");
  await page.waitForURL(/tab=overview/);
  await leave(visited);
});

test(`a running job of ${CHARTS} charts is walked through by less than ${MOST_STOPS} tabs`, async () => {
  const visited = await visit(browser, service, `jobs/${runs.id}`);
  const { page } = visited;
  while ((await page.locator("figure").count()) < CHARTS) await page.mouse.wheel(0, 400);
  await page.evaluate(() => window.scrollTo(0, 0));
  let stops = 0;
  await page.locator(".skip").focus();
  for (; stops < 4 * MOST_STOPS; stops += 1) {
    await page.keyboard.press("Tab");
    if (await page.evaluate(() => document.activeElement === document.body)) break;
  }
  assert.ok(stops < MOST_STOPS, `${stops} tab stops`);
  await leave(visited);
});

async function open(page: Page, path: string): Promise<void> {
  await page.goto(`${service.url}/${path}`);
  await page.waitForLoadState("load");
  await page.locator("main").getByText(/\w{3}/).first().waitFor();
  await page.waitForTimeout(400);
}

/** Returns the serious faults at both widths and in both themes of a page that is shown. */
async function faultsEverywhere(page: Page, where: string): Promise<string[]> {
  const found: string[] = [];
  await page.evaluate(AXE);
  for (const size of [DESK, PHONE]) {
    await page.setViewportSize(size);
    for (const colorScheme of ["light", "dark"] as const) {
      // Colours that still change are none of the theme.
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      await page.evaluate(
        () => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))),
      );
      found.push(...(await faultsOf(page, `${where}, ${size.width} px, ${colorScheme}`, RULES[colorScheme])));
    }
  }
  await page.setViewportSize(DESK);
  return found;
}

async function faultsOf(page: Page, where: string, options: object): Promise<string[]> {
  const found = await page.evaluate(async (options) => {
    const { axe } = globalThis as unknown as { axe: { run(options: object): Promise<Found> } };
    return (await axe.run(options)).violations;
  }, options);
  return found
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .flatMap(({ id, nodes }) =>
      nodes.slice(0, 3).map((node) => `${where}: ${id}: ${node.html.slice(0, 160)} ${node.failureSummary}`),
    );
}

interface Found {
  readonly violations: readonly {
    readonly id: string;
    readonly impact: string;
    readonly nodes: readonly { readonly html: string; readonly failureSummary: string }[];
  }[];
}

/** Returns what a phone cannot show or press, within the page. Links within sentences and lines of a log are text. */
function unfit(least: number): string[] {
  const found: string[] = [];
  const over = document.documentElement.scrollWidth - innerWidth;
  if (over > 0) found.push(`scrolls sideways by ${over} px`);
  const pressed = "a, button, select, summary, input, textarea, [role=slider], [role=option]";
  for (const one of document.querySelectorAll<HTMLElement>(pressed)) {
    const { width, height } = (one.closest("label") ?? one).getBoundingClientRect();
    if (width === 0 || height === 0 || one.matches(".hidden-visually, .skip, .log *, [tabindex='-1']"))
      continue;
    const isOfText = [...(one.parentNode?.childNodes ?? [])].some(
      (beside) => beside.nodeType === Node.TEXT_NODE && /\w{2}/.test(beside.textContent ?? ""),
    );
    if (one.localName === "a" && isOfText) continue;
    if (Math.min(width, height) < least - 0.5)
      found.push(`${Math.round(width)} × ${Math.round(height)} px: ${one.outerHTML.slice(0, 120)}`);
  }
  return [...new Set(found)];
}
