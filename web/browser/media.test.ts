/** What a job logs besides numbers, shown while it logs. */
import assert from "node:assert/strict";
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Browser, Locator } from "playwright-core";
import { launch } from "./chromium.ts";
import { reach, submit, type Job } from "./jobs.ts";
import { leave, visit } from "./page.ts";
import { Service } from "./service.ts";

/** Logs all kinds at steps 10, 20 … up to the goal. Half of the true mask is found at step 10, all of it at 20. */
const PROGRAM = `
import pathlib, sys, time
import numpy
import torchyard

goal = pathlib.Path(sys.argv[1])
run = torchyard.init()
picture = numpy.full((40, 60, 3), 200, dtype=numpy.uint8)
truth = numpy.zeros((40, 60), dtype=numpy.uint8)
truth[10:20, 10:50] = 1
step = 0
while not run.should_stop():
    if step >= int(goal.read_text()):
        time.sleep(0.05)
        continue
    step += 10
    predicted = truth.copy()
    if step == 10:
        predicted[:, 30:] = 0
    run.log({"train/loss": 1 / step}, step=step)
    run.log_image("val/overlays", [picture, picture], truth=[truth, truth], predicted=[predicted, truth],
                  classes=["background", "crack"], caption=["first", "second"], step=step)
    run.log_image("val/misclassified", picture[:8, :8], caption="5 instead of 3 (0.93)", step=step)
    run.log_histogram("train/weights", numpy.arange(100) / step, step=step)
    run.log_table("val/predictions", ["<b onclick=alert(1)>name", "loss"], [[f"row {n}", n / step] for n in range(400)], step=step)
    run.log_text("val/story", f"<b>step {step}</b> <img src=x onerror=alert(1)>", step=step)
    run.log_text("<img src=x onerror=alert(1)>/odd", "t", caption="<svg onload=alert(1)>", step=step)
    run.log_confusion("val/confusion", [[9, 1], [2, step]], classes=["3", "5"], step=step)
`;

let service: Service;
let browser: Browser;
let job: Job;
const folder = mkdtempSync(join(tmpdir(), "torchyard-media-"));

before(async () => {
  writeFileSync(join(folder, "train.py"), PROGRAM);
  [service, browser] = await Promise.all([Service.start({ slots: 1, allow: folder }), launch()]);
  logUpTo(10);
  const config = { code: `file://${folder}`, entrypoint: "train.py", args: [join(folder, "goal")] };
  job = await submit(service, { name: "shows", trainer: "script", config, resources: { device: "cpu" } });
  await reach(service, job.id, "running");
});

after(async () => {
  await browser?.close();
  await service?.stop();
  rmSync(folder, { recursive: true });
});

test("the tab follows a job that logs all kinds, and its keys go back", async () => {
  const visited = await visit(browser, service, `jobs/${job.id}?tab=media&filter=story`);
  const { page } = visited;
  await page.getByText("<b>step 10</b>").waitFor();
  logUpTo(20);
  await page.getByText("<b>step 20</b>").waitFor();
  await page.getByRole("slider", { name: "Step" }).focus();
  await page.keyboard.press("ArrowLeft");
  await page.getByText("<b>step 10</b>").waitFor();
  assert.equal(new URL(page.url()).searchParams.get("step"), "10");
  await page.keyboard.press(".");
  await page.getByText("<b>step 20</b>").waitFor();
  assert.equal(new URL(page.url()).searchParams.get("step"), null);
  await leave(visited);
});

test("masks are drawn over the picture where they agree and where they do not", async () => {
  const visited = await visit(browser, service, `jobs/${job.id}?tab=media&step=10&key=val/overlays&sample=0`);
  const { page } = visited;
  const dialog = page.getByRole("dialog");
  await dialog.getByText("IoU of this picture: 50%").waitFor();
  const drawn = dialog.locator("canvas");
  const [outside, found, missed] = await Promise.all([
    pixel(drawn, 5, 5),
    pixel(drawn, 20, 15),
    pixel(drawn, 40, 15),
  ]);
  assert.equal(outside[3], 0);
  assert.ok(found[3] > 0 && missed[3] > 0);
  assert.notDeepEqual(found.slice(0, 3), missed.slice(0, 3));
  await page.keyboard.press("+");
  await dialog.getByText("×1.4").waitFor();
  await page.keyboard.press("ArrowRight");
  await dialog.getByText("IoU of this picture: 100%").waitFor();
  assert.equal(new URL(page.url()).searchParams.get("sample"), "1");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await leave(visited);
});

test("a cell of the confusion matrix shows its samples by the keyboard", async () => {
  const visited = await visit(browser, service, `jobs/${job.id}?tab=media`);
  const { page } = visited;
  const matrix = page.getByRole("img", { name: /^val\/confusion/ });
  await matrix.focus();
  for (const key of ["ArrowDown", "ArrowRight", "Enter"]) await page.keyboard.press(key);
  await page.getByText("true 3, predicted 5: 1, 10.0% of what is 3").waitFor();
  await page.getByText("1 of the 1 samples of val/misclassified").waitFor();
  await page.getByRole("article", { name: "train/weights" }).scrollIntoViewIfNeeded();
  await page.getByRole("button", { name: "over steps" }).click();
  await page.getByRole("img", { name: /over 2 steps/ }).waitFor();
  await leave(visited);
});

test("small panels stand beside one another, and on a phone below one another", async () => {
  const visited = await visit(browser, service, `jobs/${job.id}?tab=media&step=10`);
  const { page } = visited;
  const boxes = async (): Promise<readonly { x: number; y: number; width: number }[]> =>
    page.evaluate(() =>
      ["val/confusion", "val/misclassified", "val/predictions", "val/story"].flatMap((name) => {
        const box = document.querySelector(`article[aria-label="${name}"]`)?.getBoundingClientRect();
        return box ? [{ x: box.x, y: box.y, width: box.width }] : [];
      }),
    );
  await page.getByRole("article", { name: "val/predictions" }).getByRole("table").waitFor();
  const wide = await boxes();
  assert.equal(new Set(wide.map(({ y }) => y)).size, 2); // the overlays stand among them
  assert.deepEqual(
    wide.map(({ width }) => width < 400),
    [true, true, true, true],
  );
  await page.setViewportSize({ width: 390, height: 844 });
  await page.waitForFunction(() => document.querySelectorAll("article").length > 0 && innerWidth === 390);
  const narrow = await boxes();
  assert.equal(new Set(narrow.map(({ x }) => x)).size, 1);
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 390);
  await leave(visited);
});

test("two fingers zoom into an enlarged picture, and one moves it", async () => {
  const visited = await visit(
    browser,
    service,
    `jobs/${job.id}?tab=media&step=10&key=val/overlays&sample=0`,
    {
      width: 390,
      touch: true,
    },
  );
  const { page, context } = visited;
  const dialog = page.getByRole("dialog");
  await dialog.getByText("IoU of this picture: 50%").waitFor();
  const box = await dialog.getByRole("group", { name: /^Picture/ }).boundingBox();
  assert.ok(box);
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
  const cdp = await context.newCDPSession(page);
  const touch = async (
    type: "touchStart" | "touchMove" | "touchEnd",
    ...points: [number, number][]
  ): Promise<void> => {
    const touchPoints = points.map(([dx, dy], id) => ({ x: x + dx, y: y + dy, id }));
    await cdp.send("Input.dispatchTouchEvent", { type, touchPoints });
  };
  await touch("touchStart", [-20, 0], [20, 0]);
  for (const apart of [30, 40, 60]) await touch("touchMove", [-apart, 0], [apart, 0]);
  await touch("touchEnd");
  await dialog.getByText("×3.0").waitFor();
  const shift = async (): Promise<string> =>
    dialog.locator(".picture").evaluate((element) => (element as HTMLElement).style.transform);
  const before = await shift();
  await touch("touchStart", [0, 0]);
  await touch("touchMove", [40, 0]);
  await touch("touchEnd");
  assert.notEqual(await shift(), before);
  assert.equal(await page.evaluate(() => visualViewport?.scale), 1);
  await leave(visited);
});

test("on a phone all that is pressed in a panel is as high as a row", async () => {
  const visited = await visit(browser, service, `jobs/${job.id}?tab=media&filter=predictions`, {
    width: 390,
    touch: true,
  });
  const { page } = visited;
  await page.getByRole("button", { name: "CSV" }).waitFor();
  const heights = await page
    .locator("article button")
    .evaluateAll((buttons) => buttons.map((button) => Math.round(button.getBoundingClientRect().height)));
  assert.deepEqual(heights, [32, 32, 32]); // the heads of two columns, and CSV
  await leave(visited);
});

/** Lets the job log up to this step. */
function logUpTo(step: number): void {
  const path = join(folder, "goal");
  writeFileSync(`${path}.new`, String(step));
  renameSync(`${path}.new`, path);
}

async function pixel(
  canvas: Locator,
  x: number,
  y: number,
): Promise<readonly [number, number, number, number]> {
  return canvas.evaluate(
    (element, [x, y]) => {
      const data = (element as HTMLCanvasElement).getContext("2d")?.getImageData(x, y, 1, 1).data;
      return [...(data ?? [])] as [number, number, number, number];
    },
    [x, y] as const,
  );
}
