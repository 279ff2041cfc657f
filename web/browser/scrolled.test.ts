/** What is larger than its place, in a browser whose scrollbars take room: the end of a log with a long line, and a wide table. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Browser } from "playwright-core";
import { launch } from "./chromium.ts";
import { reach, submit, type Job } from "./jobs.ts";
import { leave, visit } from "./page.ts";
import { Service } from "./service.ts";

const PROGRAM = `
import torchyard
run = torchyard.init()
names = [f"column {i} with a name" for i in range(14)]
run.log_table("wide", names, [[f"cell {i}" for i in range(14)] for _ in range(40)], step=1)
for number in range(80):
    print(number)
print("x" * 400)
print("the last line")
`;

let service: Service;
let browser: Browser;
let job: Job;
const code = mkdtempSync(join(tmpdir(), "torchyard-code-"));

before(async () => {
  writeFileSync(join(code, "train.py"), PROGRAM);
  [service, browser] = await Promise.all([
    Service.start({ slots: 1, allow: code }),
    launch([], { hidesScrollbars: false }),
  ]);
  const config = { code: `file://${code}`, entrypoint: "train.py" };
  job = await submit(service, { name: "large", trainer: "script", config, resources: { device: "cpu" } });
  await reach(service, job.id, "succeeded");
});

after(async () => {
  await browser?.close();
  await service?.stop();
  rmSync(code, { recursive: true });
});

test("the last line of a log stands above the horizontal scrollbar", async () => {
  const visited = await visit(browser, service, `jobs/${job.id}?tab=logs`);
  const log = visited.page.getByRole("log");
  await log.getByText("the last line").waitFor();
  await visited.page.waitForFunction(() => {
    const scroller = document.querySelector("[role=log]");
    const last = [...(scroller?.querySelectorAll("[data-line]") ?? [])].at(-1);
    if (!scroller || !last || scroller.scrollWidth <= scroller.clientWidth) return false;
    const bottom = scroller.getBoundingClientRect().top + scroller.clientTop + scroller.clientHeight;
    return last.getBoundingClientRect().bottom <= bottom;
  });
  assert.ok(await log.evaluate((found: HTMLElement) => found.offsetHeight - found.clientHeight > 5));
  await leave(visited);
});

for (const width of [1440, 390])
  test(`all columns of a wide table are reached within its card on ${width} pixels`, async () => {
    const visited = await visit(browser, service, `jobs/${job.id}?tab=media`, { width });
    const { page } = visited;
    const region = page.getByRole("region", { name: "wide" });
    await region.getByRole("table").waitFor();
    const last = region.getByRole("columnheader").last();
    await region.evaluate((found) => found.scrollTo(found.scrollWidth, 0));
    const [outer, inner] = [await region.boundingBox(), await last.boundingBox()];
    assert.ok(outer && inner);
    assert.ok(inner.x >= outer.x && inner.x + inner.width <= outer.x + outer.width + 1);
    assert.equal(
      await page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth),
      true,
    );
    await leave(visited);
  });
