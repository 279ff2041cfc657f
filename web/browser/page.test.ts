/** The page in a real Chromium against a real service: what must hold before every commit. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { after, before, test } from "node:test";
import type { Browser } from "playwright-core";
import { launch } from "./chromium.ts";
import { Figure } from "./figures.ts";
import { reach } from "./jobs.ts";
import { accept, code, leave, visit } from "./page.ts";
import { Service } from "./service.ts";

const PROGRAM = `
import pathlib, sys, time, torchyard

run = torchyard.init()
print("<script>document.title = 'taken'</script><img src=x onerror=alert(1)>", flush=True)
for step in range(1, 6):
    while step == 4 and not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.05)
    run.log({"train/loss": 1 / step}, step=step)
    print("line", step, flush=True)
raise SystemExit("the disk of dreams is full")
`;

let service: Service;
let browser: Browser;
const folder = mkdtempSync(join(tmpdir(), "torchyard-code-"));
const gate = join(folder, "gate");

before(async () => {
  writeFileSync(join(folder, "train.py"), PROGRAM);
  const settings = { TORCHYARD_LAUNCHER: "torchrun" }; // its job is a command, which needs no torch
  [service, browser] = await Promise.all([Service.start({ allow: folder, settings }), launch()]);
});

after(async () => {
  await browser?.close();
  await service?.stop();
  rmSync(folder, { recursive: true });
});

test("a job is submitted, its curve grows, its log is text and is saved, and its end says why", async () => {
  const visited = await visit(browser, service, "submit");
  const { page } = visited;
  const config = { code: `file://${folder}`, command: "python", args: ["train.py", gate] };
  await page
    .locator("#yaml")
    .fill(JSON.stringify({ name: "noisy", trainer: "script", max_restarts: 0, config }));
  await page.getByText("It would start at once.").waitFor();
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  await page.getByRole("heading", { name: "noisy" }).waitFor();
  const id = new URL(page.url()).pathname.split("/").at(-1) ?? "";
  const chart = new Figure(page, "train/loss");
  await chart.reaches(3);
  writeFileSync(gate, "");
  await chart.reaches(5);
  await reach(service, id, "failed");
  const advice = page.getByRole("region", { name: "What happened, and what to do" });
  await advice.getByText("dreams").first().waitFor();
  await page.goto(`${service.url}/jobs/${id}?tab=logs&line=1`);
  await page.getByText("<script>document.title = 'taken'</script>").waitFor();
  assert.notEqual(await page.title(), "taken");
  const [log] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "raw" }).click(),
  ]);
  assert.equal(log.suggestedFilename(), "noisy-logs.txt");
  assert.ok((await readFile(await log.path(), "utf8")).includes("line 5"));
  await leave(visited);
});

test("a one-time code logs in, and leaves no secret where scripts can read it", async () => {
  const visited = await visit(browser, service);
  const { page, context } = visited;
  assert.equal(new URL(page.url()).hash, "");
  const [cookie, ...others] = await context.cookies();
  assert.deepEqual(others, []);
  assert.equal(cookie?.httpOnly, true);
  assert.equal(cookie?.sameSite, "Strict");
  const stored = await page.evaluate(() =>
    JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]),
  );
  assert.ok(!stored.includes(service.facts.token) && !stored.includes(cookie?.value ?? ""));
  await page.reload();
  await page.getByRole("heading", { name: "Queue" }).waitFor();
  await leave(visited);
});

test("the web server of a job gets a visitor's cookie, and can do nothing with it", async () => {
  const visited = await visit(browser, service);
  const stolen: string[] = [];
  const thief = createServer((request, answer) => {
    stolen.push(request.headers.cookie ?? "");
    answer.writeHead(200, { "content-type": "text/html" }).end("<p>the page of a job</p>");
  });
  await new Promise<void>((ready) => thief.listen(0, "127.0.0.1", ready));
  try {
    const page = await visited.context.newPage();
    await page.goto(`http://127.0.0.1:${(thief.address() as AddressInfo).port}/`);
    const cookie = stolen[0] ?? "";
    assert.match(cookie, /^torchyard_[0-9a-f]{12}=.{40,}$/);
    for (const path of ["v1/me", "v1/jobs", "v1/stream?topic=jobs", "v1/jobs/job_1/logs/download"]) {
      const refused = await fetch(new URL(path, service.url), { headers: { cookie } });
      assert.equal(refused.status, 401, path);
      const theirs = await page.evaluate(
        (target) =>
          fetch(target, { credentials: "include", headers: { "x-csrf-token": "x" } }).then(
            () => "answered",
            () => "refused",
          ),
        new URL(path, service.url).href,
      );
      assert.equal(theirs, "refused", path);
    }
    assert.equal(await page.evaluate(() => localStorage.length), 0);
  } finally {
    thief.closeAllConnections();
    thief.close();
  }
  await leave(visited);
});

test("a link of somebody else does not change the account unasked", async () => {
  await service.ask("v1/users", { method: "POST", body: { name: "mallory" } });
  const { token } = await service.ask<{ token: string }>("v1/tokens", {
    method: "POST",
    body: { user: "mallory" },
  });
  const link = async (): Promise<string> => `${service.url}/#code=${await code(service, token)}`;
  const stranger = await browser.newContext({ locale: "en-US" });
  const first = await stranger.newPage();
  await first.goto(await link());
  await first.getByRole("button", { name: "Continue as mallory" }).waitFor();
  assert.deepEqual(await stranger.cookies(), []);
  await first.keyboard.press("Enter");
  await first.getByRole("button", { name: "Do not sign in" }).click();
  await first.getByLabel("Personal token").waitFor();
  await stranger.close();

  const visited = await visit(browser, service);
  const page = await visited.context.newPage();
  await page.goto(await link());
  await page.getByText("You are signed in as admin now").waitFor();
  await page.getByRole("button", { name: "Stay admin" }).click();
  await page.getByLabel("Menu of admin").waitFor();
  const own = await visited.context.newPage();
  await own.goto(`${service.url}/#code=${await code(service)}`);
  await own.getByLabel("Menu of admin").waitFor();
  await page.goto("about:blank");
  await page.goto(await link());
  await page.getByRole("button", { name: "Continue as mallory" }).click();
  await page.getByLabel("Menu of mallory").waitFor();
  await leave(visited);
});

test("what a browser loads first is small", async () => {
  const context = await browser.newContext({ locale: "en-US" });
  const page = await context.newPage();
  const sizes = { script: 0, stylesheet: 0, font: 0 };
  const read: Promise<void>[] = [];
  page.on("response", (answer) => {
    const kind = answer.request().resourceType();
    if (kind === "script" || kind === "stylesheet" || kind === "font")
      read.push(
        answer
          .body()
          .then((body) => void (sizes[kind] += kind === "font" ? body.length : gzipSync(body).length)),
      );
  });
  await page.goto(`${service.url}/#code=${await code(service)}`);
  await accept(page);
  await page.getByRole("heading", { name: "Queue" }).waitFor();
  await page.evaluate(() => document.fonts.ready);
  await Promise.all(read);
  await context.close();
  const { script, stylesheet, font } = sizes;
  assert.ok(script > 0 && script <= 75_000, `${script} bytes of scripts`);
  assert.ok(stylesheet > 0 && stylesheet <= 12_000, `${stylesheet} bytes of styles`);
  assert.ok(font > 0 && font <= 24_000, `${font} bytes of fonts`);
});
