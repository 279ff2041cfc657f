/** The workspace with many runs: from their curves to the frame that shows them, and what a frame costs while all of them log. */
import type { Browser, Page, Route } from "playwright-core";
import { firstColoured, recorded, type Frame } from "./curve.ts";
import { afterRequest, frames, type Frames } from "./frames.ts";
import { Stream } from "./heap.ts";

export interface Workspace {
  readonly runs: number;
  readonly keys: number;
  readonly repeats: number;
  /** Of the live frames. */
  readonly seconds: number;
}

export interface Drawn {
  /** Milliseconds of each repeat, from the last byte of the curves to the frame that shows them. */
  readonly wall: number[];
  /** What the main thread spends on them, until all is quiet. */
  readonly cpu: number[];
  readonly live: Frames;
}

const CURVES = /v1\/metrics\?.*key=/;
const SETTLED_MS = 2_500;
const POINTS = 100;
const PLOT = "figure .host";

/** Opens the page behind a server that answers the stream itself; the list and the curves are made up, the page is not. */
export async function workspaces(
  browser: Browser,
  order: Workspace & { readonly login: string },
  loggedIn: (browser: Browser, login: string) => Promise<Page>,
): Promise<Drawn> {
  const jobs = Array.from({ length: order.runs }, (_, run) => `job_${run.toString(16).padStart(32, "0")}`);
  const keys = Array.from({ length: order.keys }, (_, key) => `train/k${key}`);
  const stream = new Stream(new URL(order.login).origin, { hours: 1, speed: 1, jobs, keys });
  try {
    const root = await stream.start();
    const page = await loggedIn(browser, `${root}${new URL(order.login).hash}`);
    await made(page, jobs, keys);
    const reader = await page.context().newPage();
    await page.bringToFront();
    const address = `${root}jobs?as=charts&runs=all`;
    const [wall, cpu]: [number[], number[]] = [[], []];
    for (let repeat = 0; repeat < order.repeats; repeat++) {
      wall.push(await once(page, reader, address));
      cpu.push(await afterRequest(page, CURVES, SETTLED_MS / 1000, () => opened(page, address)));
    }
    void stream.playUntil(1).catch(() => undefined); // until the page goes
    return { wall, cpu, live: await frames(page, order.seconds) };
  } finally {
    stream.stop();
  }
}

async function once(page: Page, reader: Page, address: string): Promise<number> {
  const shown: Frame[] = [];
  const session = await recorded(page, shown);
  await opened(page, address);
  await page.waitForTimeout(SETTLED_MS);
  const arrived = await page.evaluate((curves) => {
    const entries = performance.getEntriesByType("resource") as PerformanceResourceTiming[];
    const found = entries.filter(({ name }) => new RegExp(curves).test(name));
    return performance.timeOrigin + Math.max(...found.map(({ responseEnd }) => responseEnd));
  }, CURVES.source);
  const box = await page.locator(PLOT).first().boundingBox();
  const first =
    box &&
    (await firstColoured(
      reader,
      shown.filter(({ at }) => at >= arrived),
      box,
    ));
  await session.detach();
  if (!first) throw new Error("the curves were not painted");
  return first.at - arrived;
}

async function opened(page: Page, address: string): Promise<void> {
  await page.goto(address);
  await page.locator("figure canvas").first().waitFor();
}

async function made(page: Page, jobs: readonly string[], keys: readonly string[]): Promise<void> {
  const rows = jobs.map(rowOf);
  await page.route(/v1\/jobs\?/, (route) => {
    const query = new URL(route.request().url()).searchParams;
    const from = Number(query.get("after"));
    const next = from + Number(query.get("limit"));
    const page = { data: rows.slice(from, next), has_more: next < rows.length, next: String(next) };
    return answer(route, { ...page, counts: { running: rows.length }, total: rows.length });
  });
  await page.route(/v1\/jobs\/columns/, (route) => answer(route, { data: [], jobs: rows.length }));
  await page.route(/v1\/metrics\?/, (route) => {
    const query = new URL(route.request().url()).searchParams;
    const asked = query.getAll("job");
    const listed = asked.map((job_id) => ({
      ...{ job_id, position: 1, keys: keys.map((key) => ({ key, count: POINTS })) },
    }));
    const series = query.getAll("key").flatMap((key) => asked.map((job_id) => curveOf(job_id, key)));
    return answer(route, { jobs: listed, series, max_points: POINTS });
  });
}

function rowOf(id: string, run: number): Record<string, unknown> {
  return {
    ...{ id, name: `run-${run}`, trainer: "script", state: "running", owner: "admin", visibility: "private" },
    ...{
      labels: {},
      attempt: 1,
      sweep: null,
      priority: 0,
      devices: [],
      error: null,
      best: null,
      columns: {},
    },
    ...{ created_at: new Date().toISOString(), started_at: null, finished_at: null, version: 1, position: 1 },
    ...{
      metrics: { "train/k0": 0.5 },
      progress: { step: 1 },
      status_reason: { code: "running", message: "" },
    },
  };
}

function curveOf(job_id: string, key: string): Record<string, unknown> {
  const speed = 1 + (Number.parseInt(job_id.slice(-4), 16) % 37);
  const step = Array.from({ length: POINTS }, (_, i) => i + 1);
  const mean = step.map((at) => Math.exp((-at * speed) / 900) + 0.02 * Math.sin(at * speed));
  const columns = { step, time: step, attempt: step.map(() => 1), mean, min: mean, max: mean, ema: mean };
  return { job_id, key, points: POINTS, hidden: false, smooth: 0.9, columns };
}

function answer(route: Route, body: unknown): Promise<void> {
  return route.fulfill({ contentType: "application/json", body: JSON.stringify(body) });
}
