/** What a frame costs while one scrolls through the table of jobs, which is read page by page meanwhile. */
import type { Page } from "playwright-core";
import { frames, type Frames } from "./frames.ts";

/** Eight rows. */
const PER_FRAME_PX = 256;
const AFTER_S = 0.5;
const WARM_MS = 3_000;

/** Scrolls down from the top, a step in each frame. */
export async function scrolled(page: Page, path: string, seconds: number): Promise<Frames> {
  await page.goto(new URL(`/${path}`, page.url()).href);
  await page.locator("tbody tr[data-row]").nth(20).waitFor();
  await page.waitForTimeout(WARM_MS);
  const found = await frames(page, AFTER_S, () =>
    page.evaluate(
      ({ step, ms }) =>
        new Promise<void>((done) => {
          const end = performance.now() + ms;
          const next = (now: number): void => {
            scrollBy(0, step);
            if (now < end) requestAnimationFrame(next);
            else done();
          };
          requestAnimationFrame(next);
        }),
      { step: PER_FRAME_PX, ms: seconds * 1000 },
    ),
  );
  if ((await page.evaluate(() => scrollY)) < PER_FRAME_PX * 50) throw new Error("the table did not scroll");
  return found;
}
