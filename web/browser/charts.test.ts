/** Curves as they are used: zoomed, smoothed, read, shared, and seen to grow across attempts. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser } from "playwright-core";
import { launch } from "./chromium.ts";
import { Feeds } from "./feed.ts";
import { Figure } from "./figures.ts";
import { reach, type Job } from "./jobs.ts";
import { leave, visit } from "./page.ts";
import { Service } from "./service.ts";

const LONG = 3000;
const SERIES = Array.from({ length: 8 }, (_, slot) => `--series-${slot + 1}`);

let service: Service;
let browser: Browser;
let long: Job;
let grows: Job;
const feeds = new Feeds();

before(async () => {
  [service, browser] = await Promise.all([Service.start({ slots: 2, allow: feeds.folder }), launch()]);
  long = await feeds.submit(service, "long", { until: LONG, ends: true });
  grows = await feeds.submit(service, "grows", { until: 60, kept: 100 });
  await Promise.all([reach(service, long.id, "succeeded"), reach(service, grows.id, "running")]);
});

after(async () => {
  await browser?.close();
  await service?.stop();
  feeds.remove();
});

test("a chart that is not zoomed follows its newest point, and a zoom stays where it is", async () => {
  const visited = await visit(browser, service, `jobs/${grows.id}`);
  const chart = new Figure(visited.page, "train/loss");
  await chart.reaches(60);
  const [, before] = await chart.range();
  feeds.goal("grows", 70);
  await chart.reaches(70);
  const [, grown] = await chart.range();
  assert.ok(grown > before && grown >= 70, `${before} grew to ${grown}`);
  await chart.drag(0.3, 0.6);
  await visited.page.getByRole("button", { name: "Reset zoom" }).waitFor();
  await visited.page.waitForFunction(
    ([end]) => Number(document.querySelector("figure")?.dataset["to"]) < (end ?? 0),
    [grown],
  );
  const zoomed = await chart.range();
  assert.ok(Math.abs(zoomed[0] - 0.3 * grown) < 2 && Math.abs(zoomed[1] - 0.6 * grown) < 2, String(zoomed));
  for (let step = 71; step <= 90; step++) {
    feeds.goal("grows", step);
    await chart.reaches(step);
    assert.deepEqual(await chart.range(), zoomed);
  }
  await visited.page.getByRole("button", { name: "Reset zoom" }).click();
  await visited.page.waitForFunction(() => Number(document.querySelector("figure")?.dataset["to"]) >= 90);
  await leave(visited);
});

test("a resumed job has a seam, and its curve never goes back", async () => {
  const visited = await visit(browser, service, `jobs/${grows.id}`);
  const chart = new Figure(visited.page, "train/loss");
  feeds.goal("grows", 130);
  await chart.reaches(130);
  await service.ask(`v1/jobs/${grows.id}/pause`, { method: "POST" });
  await reach(service, grows.id, "paused");
  await service.ask(`v1/jobs/${grows.id}/resume`, { method: "POST" });
  await reach(service, grows.id, "running");
  feeds.goal("grows", 160);
  await chart.reaches(160);
  await chart.root.locator('.host[aria-label*="Attempt 2 resumed at step 100."]').waitFor();
  const expected = Array.from({ length: 160 }, (_, i) => i + 1);
  const live = await chart.rows();
  assert.deepEqual(
    live.map((row) => Number(row["step"])),
    expected,
  );
  assert.deepEqual(
    live.map((row) => Number(row["attempt"])),
    expected.map((step) => (step > 100 ? 2 : 1)),
  );
  await visited.page.getByLabel("replaced points").check();
  await visited.page.waitForURL(/ghost=1/);
  await visited.page.reload();
  await chart.reaches(160);
  // The page goes on with the service's average, but for its last digit.
  assert.deepEqual((await chart.rows()).map(rounded), live.map(rounded));
  await leave(visited);
});

test("a zoom smooths nothing anew: each step keeps its smoothed value", async () => {
  const visited = await visit(browser, service, `jobs/${long.id}?smooth=0.9`);
  const chart = new Figure(visited.page, "train/loss");
  await chart.reaches(LONG);
  const coarse = new Map((await chart.rows()).map((row) => [row["step"], row]));
  assert.ok(coarse.size <= 1500);
  await chart.drag(0.4, 0.6);
  await visited.page.mouse.move(0, 0);
  await chart.root.locator(".notes", { hasText: /^\s*(59|60)\d points/ }).waitFor();
  const fine = (await chart.rows()).filter((row) => coarse.has(row["step"]));
  assert.ok(fine.length > 200, `only ${fine.length} steps are in both`);
  for (const row of fine) {
    const before = coarse.get(row["step"]);
    assert.ok(Math.abs(Number(row["ema"]) - Number(before?.["ema"])) < 1e-9, `step ${row["step"]}`);
    assert.equal(row["points"], "1");
  }
  assert.ok(fine.some((row) => Math.abs(Number(row["ema"]) - Number(row["mean"])) > 1));
  await leave(visited);
});

test("a spike of 1e9 and a NaN become ticks, and the curve still fills its chart", async () => {
  const visited = await visit(browser, service, `jobs/${long.id}`);
  const chart = new Figure(visited.page, "train/wild");
  await chart.reaches(LONG);
  await chart.root.getByText(/1 not finite · 1 above/).waitFor();
  const rows = await chart.coloured(SERIES, "right");
  const inner = rows.flatMap((count, row) => (count > 0 ? [row] : []));
  const filled = ((inner.at(-1) ?? 0) - (inner[0] ?? 0)) / rows.length;
  assert.ok(filled >= 0.6, `the curve fills ${Math.round(100 * filled)}% of the height`);
  const above = (await chart.coloured(SERIES, "left", 6)).slice(0, 6);
  assert.ok(
    above.slice(2).every((count) => count > 0),
    `no tick above the plot: ${above}`,
  );
  const below = (await chart.coloured(["--failed"], "left")).slice(-8);
  assert.ok(below.filter((count) => count > 0).length >= 6, `no tick for the NaN: ${below}`);
  await chart.root.getByRole("button", { name: "show" }).click();
  await visited.page.waitForURL(/all=train%2Fwild/);
  await chart.root.locator(".notes", { hasText: /1 not finite$/ }).waitFor();
  await leave(visited);
});

test("a logarithmic axis says how many values it cannot show", async () => {
  const visited = await visit(browser, service, `jobs/${long.id}`);
  const chart = new Figure(visited.page, "train/zero");
  await chart.reaches(LONG);
  await chart.choose("Logarithmic");
  await visited.page.mouse.move(0, 0);
  await chart.root.getByText(`${LONG / 100} values ≤ 0 are not shown`).waitFor();
  await leave(visited);
});

test("the crosshair reads the same step in every chart", async () => {
  const visited = await visit(browser, service, `jobs/${long.id}`);
  const keys = ["train/loss", "train/wild", "train/zero"];
  const charts = keys.map((key) => new Figure(visited.page, key));
  for (const chart of charts) await chart.reaches(LONG);
  await charts[0]?.point(0.37);
  const steps = await Promise.all(charts.map((chart) => chart.step()));
  assert.deepEqual(
    steps,
    steps.map(() => steps[0]),
  );
  assert.ok(Math.abs((steps[0] ?? 0) - 0.37 * LONG) < 20);
  await leave(visited);
});

test("a key opens the log at the crosshair, and back leads to the chart", async () => {
  const visited = await visit(browser, service, `jobs/${long.id}`);
  const chart = new Figure(visited.page, "train/loss");
  await chart.reaches(LONG);
  await chart.point(0.5);
  await chart.step();
  await visited.page.keyboard.press("l");
  await visited.page.waitForURL(/tab=logs&line=\d+/);
  await visited.page.getByRole("log").getByText("of the feed").first().waitFor();
  await visited.page.goBack();
  await chart.reaches(LONG);
  await leave(visited);
});

test("a copied address shows the same in another browser", async () => {
  const visited = await visit(browser, service, `compare?jobs=${long.id},${grows.id}`);
  const { page } = visited;
  const chart = new Figure(page, "train/loss");
  await chart.reaches(LONG);
  await page.getByLabel("smooth").fill("0.8");
  await page.waitForURL(/smooth=0.8/);
  await chart.choose("Logarithmic");
  await page.getByRole("list", { name: "Jobs" }).getByRole("button", { name: "grows" }).click();
  await page.waitForURL(/hide=/);
  await chart.drag(0.2, 0.5);
  await page.waitForURL(/zoom=/);
  const other = await visit(browser, service, page.url().slice(service.url.length + 1));
  const same = new Figure(other.page, "train/loss");
  await same.reaches(LONG);
  await same.root.locator('.host[aria-label*="last: long "]').waitFor(); // the job itself may be read after its curves
  assert.equal(other.page.url(), page.url());
  assert.equal(await other.page.getByLabel("smooth").inputValue(), "0.8");
  await same.root.locator(".mark", { hasText: "log" }).waitFor();
  const [, end] = await same.range();
  assert.ok(end < 0.6 * LONG);
  await page.mouse.move(0, 0);
  assert.deepEqual(await same.range(), await chart.range());
  assert.equal(await same.summary(), await chart.summary());
  await leave(other);
  await leave(visited);
});

test("curves are drawn where the browser's language is no valid tag, as with LANG=C", async () => {
  const visited = await visit(browser, service, "jobs");
  await visited.page.addInitScript(() =>
    Object.defineProperty(Navigator.prototype, "language", { get: () => "en-US@posix" }),
  );
  await visited.page.goto(`${service.url}/jobs/${long.id}`);
  await new Figure(visited.page, "train/loss").reaches(LONG);
  await leave(visited);
});

/** Returns a row of the CSV with twelve digits of its average. */
function rounded(row: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return { ...row, ema: Number(row["ema"]).toPrecision(12) };
}
