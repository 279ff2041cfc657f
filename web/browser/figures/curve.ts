/** The time from a navigation to the first coloured pixel inside a plot, from the frames that Chromium composes. */
import { writeFileSync } from "node:fs";
import type { Browser, BrowserContext, CDPSession, Page } from "playwright-core";
import { accept } from "../page.ts";

export interface Subject {
  readonly name: string;
  readonly url: string;
  /** Selects the plot's area. */
  readonly plot: string;
  /** Logs in: the address is opened once, and what the browser keeps of it. Empty where there is no login. */
  readonly login: string;
}

/** Cookies and local storage. */
type Kept = Awaited<ReturnType<BrowserContext["storageState"]>>;

export interface Frame {
  readonly png: string;
  /** Milliseconds since the epoch. */
  readonly at: number;
}

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

const SIZE = { width: 1440, height: 900 };
const MOST_MS = 60_000;
const SETTLED_MS = 1_500;
/** A curve has a colour: grid, axes, text and what stands for them before are greys. */
const LEAST_CHROMA = 24;
const LEAST_PIXELS = 12;

/** Returns the milliseconds of each repeat, by subject. Each visit has a cold cache; the subjects take turns. */
export async function firstCurves(
  browser: Browser,
  subjects: readonly Subject[],
  repeats: number,
  keep = "",
): Promise<Record<string, number[]>> {
  const kept = new Map<string, Kept>();
  for (const subject of subjects) kept.set(subject.name, await loggedIn(browser, subject));
  const reader = await (await browser.newContext()).newPage();
  const found: Record<string, number[]> = Object.fromEntries(subjects.map(({ name }) => [name, []]));
  for (let repeat = 0; repeat < repeats; repeat++)
    for (const subject of subjects) {
      const context = await browser.newContext({
        viewport: SIZE,
        locale: "en-US",
        colorScheme: "light",
        storageState: kept.get(subject.name) ?? { cookies: [], origins: [] },
      });
      found[subject.name]?.push(await once(context, subject, reader, repeat === 0 ? keep : ""));
      await context.close();
    }
  await reader.context().close();
  return found;
}

async function loggedIn(browser: Browser, { login }: Subject): Promise<Kept> {
  const context = await browser.newContext({ locale: "en-US" });
  if (login) {
    const page = await context.newPage();
    await page.goto(login);
    await accept(page);
  }
  const found = await context.storageState();
  await context.close();
  return found;
}

async function once(context: BrowserContext, subject: Subject, reader: Page, keep: string): Promise<number> {
  const page = await context.newPage();
  const frames: Frame[] = [];
  const session = await recorded(page, frames);
  await page.goto(subject.url, { waitUntil: "commit" });
  const began = await page.evaluate(() => performance.timeOrigin);
  const plot = page.locator(subject.plot).first();
  await plot.waitFor({ timeout: MOST_MS });
  const deadline = Date.now() + MOST_MS;
  let first: Frame | null = null;
  let last = 0;
  while (!first && Date.now() < deadline) {
    await page.waitForTimeout(SETTLED_MS);
    const box = await plot.boundingBox();
    if (box && frames.length > last) first = await firstColoured(reader, frames, box);
    last = frames.length;
  }
  await session.detach();
  if (!first) throw new Error(`${subject.name}: no curve within ${MOST_MS / 1000} s`);
  if (keep) keepFrames(keep, subject.name, frames, first);
  return first.at - began;
}

/** Records the frames that Chromium composes from now on. */
export async function recorded(page: Page, frames: Frame[]): Promise<CDPSession> {
  const session = await page.context().newCDPSession(page);
  session.on("Page.screencastFrame", ({ data, metadata, sessionId }) => {
    frames.push({ png: data, at: (metadata.timestamp ?? 0) * 1000 });
    void session.send("Page.screencastFrameAck", { sessionId }).catch(() => undefined);
  });
  await session.send("Page.startScreencast", { format: "png", everyNthFrame: 1 });
  return session;
}

/** Returns the first frame that shows a coloured pixel inside the box. */
export async function firstColoured(reader: Page, frames: readonly Frame[], box: Box): Promise<Frame | null> {
  for (const frame of frames) if ((await coloured(reader, frame.png, box)) >= LEAST_PIXELS) return frame;
  return null;
}

async function coloured(reader: Page, png: string, box: Box): Promise<number> {
  return reader.evaluate(
    async ({ png, box, least }) => {
      const image = new Image();
      image.src = `data:image/png;base64,${png}`;
      await image.decode();
      const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight);
      const context = canvas.getContext("2d", { willReadFrequently: true });
      if (!context) throw new Error("no canvas");
      context.drawImage(image, 0, 0);
      const height = Math.min(box.height, image.naturalHeight - box.y); // of a table, what is on the screen
      const { data } = context.getImageData(box.x, box.y, box.width, height);
      let count = 0;
      for (let i = 0; i < data.length; i += 4) {
        const [red, green, blue] = [data[i] ?? 0, data[i + 1] ?? 0, data[i + 2] ?? 0];
        if (Math.max(red, green, blue) - Math.min(red, green, blue) >= least) count += 1;
      }
      return count;
    },
    { png, box, least: LEAST_CHROMA },
  );
}

/** Writes the frame before the curve and the one that has it, for the eye. */
function keepFrames(folder: string, name: string, frames: readonly Frame[], first: Frame): void {
  const before = frames[frames.indexOf(first) - 1];
  if (before) writeFileSync(`${folder}/${name}-before.png`, Buffer.from(before.png, "base64"));
  writeFileSync(`${folder}/${name}-first.png`, Buffer.from(first.png, "base64"));
}
