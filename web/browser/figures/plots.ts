/** The time from a list of runs to the first coloured pixel of their parallel coordinates. The list is made up; the page is not. */
import type { Page, Route } from "playwright-core";
import { afterRequest } from "./frames.ts";
import { firstColoured, recorded, type Frame } from "./curve.ts";

export interface Runs {
  readonly runs: number;
  readonly axes: number;
  readonly repeats: number;
}

const METRIC = "metric:val/loss:min";
const PLOT = "Parallel coordinates";
const LIST = /v1\/jobs\?.*columns=/;
const SETTLED_MS = 1_500;

export interface Plotted {
  /** Milliseconds of each repeat, from the last byte of the list to the frame that shows the runs. */
  readonly wall: number[];
  /** What the main thread spends on it, until all is quiet. */
  readonly cpu: number[];
}

export async function plotted(page: Page, order: Runs): Promise<Plotted> {
  const settings = Array.from({ length: order.axes - 1 }, (_, i) => `config.k${i}`);
  const known = [...settings, "metric:val/loss:last"].map((name) => ({
    name,
    jobs: order.runs,
    differs: true,
  }));
  const rows = Array.from({ length: order.runs }, (_, run) => rowOf(run, settings));
  await page.route("**/v1/jobs/columns?*", (route) => answer(route, { data: known, jobs: 500 }));
  await page.route(LIST, (route) => answer(route, { data: rows, has_more: false, next: null }));
  const reader = await page.context().newPage();
  await page.bringToFront();
  const found: Plotted = { wall: [], cpu: [] };
  const address = new URL("/compare?q=run", page.url()).href;
  for (let repeat = 0; repeat < order.repeats; repeat++) {
    found.wall.push(await once(page, reader, address));
    found.cpu.push(await afterRequest(page, LIST, SETTLED_MS / 1000, () => opened(page, address)));
  }
  return found;
}

async function once(page: Page, reader: Page, address: string): Promise<number> {
  const frames: Frame[] = [];
  const session = await recorded(page, frames);
  await opened(page, address);
  await page.waitForTimeout(SETTLED_MS);
  const arrived = await page.evaluate((list) => {
    const entries = performance.getEntriesByType("resource") as PerformanceResourceTiming[];
    const found = entries.find(({ name }) => new RegExp(list).test(name));
    return found ? performance.timeOrigin + found.responseEnd : NaN;
  }, LIST.source);
  const box = await page.getByRole("region", { name: PLOT }).boundingBox();
  const later = frames.filter(({ at }) => at >= arrived);
  const first = box && (await firstColoured(reader, later, box));
  await session.detach();
  if (!first) throw new Error("the runs were not painted");
  return first.at - arrived;
}

async function opened(page: Page, address: string): Promise<void> {
  await page.goto(address);
  await page.getByRole("region", { name: PLOT }).locator("[role=slider]").last().waitFor();
}

function rowOf(run: number, settings: readonly string[]): Record<string, unknown> {
  const numbers = settings.map((key, i) => [key, ((run * (2 * i + 7)) % 101) / 101] as const);
  const columns = Object.fromEntries([...numbers, [METRIC, ((run * 37) % 997) / 997]]);
  return { id: `job_${run}`, name: `run-${run}`, state: "succeeded", owner: "admin", sweep: null, columns };
}

function answer(route: Route, body: unknown): Promise<void> {
  return route.fulfill({ contentType: "application/json", body: JSON.stringify(body) });
}
