/** Measures the page in Chromium: reads what from standard input (JSON), writes figures to standard output (JSON). */
import { readFileSync } from "node:fs";
import type { Browser, Page } from "playwright-core";
import { launch } from "../chromium.ts";
import { accept } from "../page.ts";
import { firstCurves, type Subject } from "./curve.ts";
import { frames } from "./frames.ts";
import { plotted } from "./plots.ts";
import { heaps, Stream, type Replay } from "./heap.ts";
import { scrolled } from "./table.ts";
import { workspaces, type Workspace } from "./workspace.ts";

/** `login`: an address of the service with a one-time code. */
type Order =
  | { what: "curve"; subjects: readonly Subject[]; repeats: number; keep: string }
  | { what: "frames"; login: string; path: string; charts: number; seconds: number }
  | { what: "heap"; login: string; path: string; replay: Replay }
  | { what: "plots"; login: string; runs: number; axes: number; repeats: number }
  | { what: "scroll"; login: string; path: string; seconds: number; height: number }
  | ({ what: "workspace"; login: string } & Workspace)
  | { what: "sizes"; login: string; paths: readonly string[] };

/** All ten charts are in sight. */
const SIZE = { width: 1440, height: 1800 };
const WARM_MS = 5_000;

const order = JSON.parse(readFileSync(0, "utf8")) as Order;
const browser = await launch();
try {
  process.stdout.write(JSON.stringify(await measured(browser, order)));
} finally {
  await browser.close();
}

async function measured(browser: Browser, order: Order): Promise<unknown> {
  if (order.what === "curve") return firstCurves(browser, order.subjects, order.repeats, order.keep);
  if (order.what === "plots") return plotted(await loggedIn(browser, order.login), order);
  if (order.what === "sizes") return sizes(await loggedIn(browser, order.login), order.paths);
  if (order.what === "scroll")
    return scrolled(await loggedIn(browser, order.login, order.height), order.path, order.seconds);
  if (order.what === "workspace") return workspaces(browser, order, loggedIn);
  const service = new URL(order.login).origin;
  if (order.what === "frames") {
    const page = await loggedIn(browser, order.login);
    await page.goto(`${service}/${order.path}`);
    await drawn(page, order.charts);
    return frames(page, order.seconds);
  }
  const stream = new Stream(service, order.replay);
  try {
    // The session is that of an origin, port and all.
    const root = await stream.start();
    const page = await loggedIn(browser, `${root}${new URL(order.login).hash}`);
    await page.goto(`${root}${order.path}`);
    await drawn(page, order.replay.keys.length);
    return await heaps(page, stream, order.replay);
  } finally {
    stream.stop();
  }
}

async function loggedIn(browser: Browser, login: string, height: number = SIZE.height): Promise<Page> {
  const page = await (await browser.newContext({ viewport: { ...SIZE, height }, locale: "en-US" })).newPage();
  await page.goto(login);
  await accept(page);
  return page;
}

/** Waits until the page has all its charts, and has done what it does once. */
async function drawn(page: Page, charts: number): Promise<void> {
  await page
    .locator("figure canvas")
    .nth(charts - 1)
    .waitFor();
  await page.waitForTimeout(WARM_MS);
}

/** Returns for each address the files that it loads, with the bytes sent of each. */
async function sizes(page: Page, paths: readonly string[]): Promise<Record<string, number>[]> {
  const found: Record<string, number>[] = [];
  for (const path of paths) {
    await page.goto(new URL(`/${path}`, page.url()).href);
    await page.waitForTimeout(WARM_MS);
    found.push(
      await page.evaluate(() => {
        const entries = performance.getEntriesByType("resource") as PerformanceResourceTiming[];
        return Object.fromEntries(
          entries
            .map(({ name, encodedBodySize }) => [new URL(name).pathname, encodedBodySize] as const)
            .filter(([name]) => name.includes("/assets/")),
        );
      }),
    );
  }
  return found;
}
