/** A browser page that is logged in, and that fails its test when the page breaks a rule of the security policy. */
import assert from "node:assert/strict";
import type { Browser, BrowserContext, BrowserContextOptions, Locator, Page } from "playwright-core";
import type { Service } from "./service.ts";

/** How long a page may take for what is waited for: finds what hangs, not what is slow beside other work. */
const PATIENCE_MS = 120_000;

export interface Visit {
  readonly page: Page;
  readonly context: BrowserContext;
  /** What the page said that it should not have: violations of its policy, errors, requests elsewhere. */
  readonly complaints: string[];
}

export interface Look {
  readonly theme?: "light" | "dark";
  readonly width?: number;
  readonly height?: number;
  /** Whether it has a screen for fingers. */
  readonly touch?: boolean;
}

/** Opens a fresh browser context at `path` below `root`, with a one-time code of the service: the administrator's, or that of a token. */
export async function visit(
  browser: Browser,
  service: Service,
  path = "",
  { root = `${service.url}/`, token, ...look }: Look & { root?: string; token?: string } = {},
): Promise<Visit> {
  const visited = await open(browser, new URL(`${path}#code=${await code(service, token)}`, root), look);
  await accept(visited.page);
  return visited;
}

/** Opens a fresh browser context that is not signed in. */
export async function freshContext(
  browser: Browser,
  options: BrowserContextOptions = {},
): Promise<BrowserContext> {
  const context = await browser.newContext({ locale: "en-US", ...options });
  context.setDefaultTimeout(PATIENCE_MS);
  return context;
}

/** Takes the account that a link with a code offers, and waits for the page. */
export async function accept(page: Page): Promise<void> {
  await page.getByRole("button", { name: /^Continue as / }).click();
  await page.getByRole("banner").waitFor();
}

/** The same with the administrator's token, as people do on another machine. */
export async function signIn(
  browser: Browser,
  service: Service,
  path: string,
  { root }: { root: string },
): Promise<Visit> {
  const visited = await open(browser, new URL(path, root));
  await visited.page.getByLabel("Personal token").fill(service.facts.token);
  await visited.page.keyboard.press("Enter");
  await visited.page.getByRole("banner").waitFor();
  return visited;
}

async function open(
  browser: Browser,
  address: URL,
  { theme = "light", width = 1440, height = 900, touch = false }: Look = {},
): Promise<Visit> {
  const context = await freshContext(browser, {
    viewport: { width, height },
    hasTouch: touch,
    isMobile: touch,
    colorScheme: theme,
  });
  const page = await context.newPage();
  const complaints: string[] = [];
  page.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
  page.on("console", (message) => {
    if (message.type() === "error" && /Content Security Policy|Uncaught/.test(message.text()))
      complaints.push(message.text());
  });
  page.on("request", (request) => {
    const target = new URL(request.url());
    if (target.protocol.startsWith("http") && target.origin !== address.origin)
      complaints.push(`request: ${request.url()}`);
  });
  await page.goto(address.href);
  return { page, context, complaints };
}

/** Drops a folder of this machine on an element. */
export async function dropFolder(target: Locator, folder: string): Promise<void> {
  const page = target.page();
  const box = await target.boundingBox();
  assert.ok(box);
  const at = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
  const data = { items: [], files: [folder], dragOperationsMask: 1 };
  const session = await page.context().newCDPSession(page);
  for (const type of ["dragEnter", "dragOver", "drop"] as const)
    await session.send("Input.dispatchDragEvent", { type, ...at, data });
  await session.detach();
}

/** Asserts that nothing was wrong, and closes the context; a request that a test still intercepts ends with it, unasked. */
export async function leave({ page, context, complaints }: Visit): Promise<void> {
  await page.unrouteAll({ behavior: "ignoreErrors" });
  await context.close();
  assert.deepEqual(complaints, []);
}

/** Returns a new one-time code: the administrator's, or that of a token. */
export async function code(service: Service, token = service.facts.token): Promise<string> {
  return (await service.ask<{ code: string }>("v1/session/codes", { method: "POST", token })).code;
}
