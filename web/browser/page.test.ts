/** The page in a real Chromium against a real service: what people do most, and what keeps strangers out, before every commit. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { after, afterEach, before, test } from "node:test";
import type { Browser, Page, Response } from "playwright-core";
import { launch } from "./chromium.ts";
import { Figure } from "./figures.ts";
import { digits, reach, submit, type Job } from "./jobs.ts";
import { accept, code, dropFolder, freshContext, leave, visit, type Visit } from "./page.ts";
import { Service } from "./service.ts";

const PROGRAM = `
import pathlib, sys, time
import torch, torchyard

run = torchyard.init()
print("<script>document.title = 'taken'</script><img src=x onerror=alert(1)>", flush=True)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 6):
    while step == 4 and not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.05)
    optimizer.zero_grad()
    loss = (model(torch.ones(1, 1)) - 1).square().mean()
    loss.backward()
    optimizer.step()
    run.log({"train/loss": loss.item()}, step=step)
    print("line", step, flush=True)
raise SystemExit("the disk of dreams is full")
`;

const PYTHON = fileURLToPath(new URL("../../.venv/bin/python", import.meta.url));
const PACK = "import sys; from torchyard.client.packing.bundle import pack; print(pack(sys.argv[1]).url)";

let service: Service;
let browser: Browser;
/** Signed in as the administrator. Tests share it unless they need a new browser context: signing in costs as much as a test. */
let shared: Visit;
/** Two that were trained, with other learning rates. */
let careful: Job;
let bold: Job;
/** The data folder of a running service, and a folder whose code its jobs may read. Unset: this file starts a service. */
const { BROWSER_SERVICE: running, BROWSER_CODE: readable = tmpdir() } = process.env;
const folder = mkdtempSync(join(readable, "torchyard-code-"));
const gate = join(folder, "gate");

before(async () => {
  writeFileSync(join(folder, "train.py"), PROGRAM);
  service = running === undefined ? await Service.start({ allow: folder }) : Service.runningIn(running);
  [careful, bold] = await Promise.all([trained("careful", 0.001), trained("bold", 0.1)]);
  browser = await launch();
  shared = await visit(browser, service);
});

afterEach(() => assert.deepEqual(shared.complaints, []));

after(async () => {
  if (shared !== undefined) await leave(shared);
  await browser?.close();
  await service?.stop();
  rmSync(folder, { recursive: true });
});

test("a recipe is submitted by the form, says at once what is wrong, and is seen to train to its end", async () => {
  const page = await open("submit");
  await page.getByLabel("name", { exact: true }).fill("by-form");
  const epochs = page.getByLabel("epochs", { exact: true });
  await epochs.fill("0");
  await page.getByText("must be at least 1.").waitFor();
  await epochs.fill("1");
  await page.getByText("Starts now.").waitFor();
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  await page.getByRole("heading", { name: "by-form" }).waitFor();
  const id = new URL(page.url()).pathname.split("/").at(-1) ?? "";
  await reach(service, id, "succeeded");
  await page.locator(".succeeded", { hasText: "succeeded" }).first().waitFor();
  await page.locator('figure[data-keys~="val/accuracy"]').waitFor();
  const job = await service.ask<Job & { spec: { config: object } }>(`v1/jobs/${id}`);
  assert.equal(job.state, "succeeded");
  assert.equal((job.spec.config as { training: { epochs: number } }).training.epochs, 1);
});

test("a folder that is dropped is uploaded as the command line does it, and its program runs", async () => {
  const own = mkdtempSync(join(tmpdir(), "torchyard-dropped-"));
  mkdirSync(join(own, "lib"));
  writeFileSync(join(own, "train.py"), "from lib.words import WORDS\n\nprint(WORDS)\n");
  writeFileSync(join(own, "lib", "words.py"), 'WORDS = "from the dropped folder"\n');
  writeFileSync(join(own, ".torchyardignore"), "*.bin\n");
  writeFileSync(join(own, "data.bin"), "left out");
  const page = await open("submit");
  await page.getByLabel("trainer", { exact: true }).selectOption("script");
  const field = page.getByLabel("code", { exact: true });
  await field.waitFor();
  await dropFolder(field, own);
  const panel = page.getByRole("region", { name: "Upload of the folder" });
  await panel.getByText("3 files").waitFor();
  await panel.getByText("1 file, 8 B: .torchyardignore").waitFor();
  await panel.getByRole("button", { name: "Upload" }).click();
  await page.getByLabel("entrypoint", { exact: true }).fill("train.py");
  await checked(page);
  const packed = execFileSync(PYTHON, ["-c", PACK, own], { encoding: "utf8" }).trim();
  assert.equal(await field.inputValue(), packed);
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  await page.waitForURL(/\/jobs\/job_/);
  await reach(service, new URL(page.url()).pathname.split("/").at(-1) ?? "", "succeeded");
  rmSync(own, { recursive: true });
});

test("a job's curve grows as it trains, its log is text and is saved, and its end says why", async () => {
  const page = await open("submit");
  const config = { code: `file://${folder}`, entrypoint: "train.py", args: [gate] };
  const resources = { device: "cpu" };
  await page
    .locator("#yaml")
    .fill(JSON.stringify({ name: "noisy", trainer: "script", max_restarts: 0, config, resources }));
  await page.getByText("Starts now.").waitFor();
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  await page.getByRole("heading", { name: "noisy" }).waitFor();
  const id = new URL(page.url()).pathname.split("/").at(-1) ?? "";
  const chart = new Figure(page, "train/loss");
  await chart.reaches(3);
  writeFileSync(gate, "");
  await chart.reaches(5);
  await reach(service, id, "failed");
  const advice = page.getByRole("region", { name: "Status and next steps" });
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
});

test("the table of jobs shows a chosen column, stores a label, and is grouped, as a copy of its address", async () => {
  const page = await open("jobs");
  await page.getByRole("button", { name: "columns" }).click();
  for (const [found, column] of [
    ["optimizer.lr", "config.optimizer.lr"],
    ["Labels", "Labels"],
  ] as const) {
    await page.getByRole("searchbox", { name: "Find a column" }).fill(found);
    await page.getByRole("checkbox", { name: column, exact: true }).press("Space");
  }
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  await page.locator("tbody td.cell", { hasText: "0.001" }).waitFor();
  await page.getByRole("button", { name: "Labels of careful: none" }).click();
  await page.getByRole("textbox", { name: "Labels of careful" }).fill("team=roads");
  const stored = page.waitForResponse("**/v1/jobs/actions"); // the row shows it before
  await page.keyboard.press("Enter");
  await stored;
  const job = await service.ask<Job & { labels: object }>(`v1/jobs/${careful.id}`);
  assert.deepEqual(job.labels, { team: "roads" });
  await page.getByRole("combobox", { name: "group by" }).fill("config.optimizer.lr");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: /^0.1 / }).waitFor();
  await page.goto(page.url());
  await page.getByRole("button", { name: /^0.1 / }).click();
  await page.getByRole("link", { name: "bold" }).waitFor();
});

test("jobs that are selected in the table are compared: their curves, what differs, and by how much", async () => {
  const page = await open("jobs");
  for (const name of ["careful", "bold"])
    await page.getByRole("checkbox", { name: `Select ${name}` }).check();
  await page.getByRole("link", { name: "Compare", exact: true }).last().click();
  const specs = page.getByRole("region", { name: "Differences of the specs" });
  const rate = specs.getByRole("row", { name: /config\.optimizer\.lr/ });
  await rate.getByText("0.001").waitFor();
  await rate.getByText("0.1", { exact: true }).waitFor();
  await page.locator('figure[data-keys~="val/accuracy"] canvas').first().waitFor();
  await page.getByRole("radio").first().check();
  await page
    .getByRole("region", { name: "Jobs" })
    .getByText(/^[+−-]\d/)
    .first()
    .waitFor();
  const { searchParams } = new URL(page.url());
  assert.deepEqual(new Set(searchParams.get("jobs")?.split(",")), new Set([careful.id, bold.id]));
  assert.ok([careful.id, bold.id].includes(searchParams.get("base") ?? ""));
});

test("a token is made in the settings, works, is shown once, and works no more when it was revoked", async () => {
  const page = await open("settings?section=tokens");
  await page.getByRole("button", { name: "Create token" }).click();
  await page.getByRole("textbox", { name: "Name" }).fill("laptop");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  const token = await page.locator(".once code").innerText();
  assert.equal((await service.ask<{ name: string }>("v1/me", { token })).name, "admin");
  await page.reload();
  const revoke = page.getByRole("button", { name: "Revoke laptop" });
  await revoke.waitFor();
  assert.ok(!(await page.content()).includes(token));
  const revoked = page.waitForResponse((answer) => answer.request().method() === "DELETE");
  await revoke.click(); // it is sent some seconds later: until then it can be taken back
  assert.ok((await revoked).ok());
  await assert.rejects(service.ask("v1/me", { token }), / 401 /);
});

test("a one-time code logs in with few, small files, and leaves no secret where scripts can read it", async () => {
  const context = await freshContext(browser);
  const page = await context.newPage();
  const sizes = { script: 0, stylesheet: 0, font: 0 };
  const read: Promise<void>[] = [];
  const note = (answer: Response): void => {
    const kind = answer.request().resourceType();
    if (kind === "script" || kind === "stylesheet" || kind === "font")
      read.push(
        answer
          .body()
          .then((body) => void (sizes[kind] += kind === "font" ? body.length : gzipSync(body).length)),
      );
  };
  page.on("response", note);
  await page.goto(`${service.url}/#code=${await code(service)}`);
  await accept(page);
  await page.getByRole("heading", { name: "Queue" }).waitFor();
  await page.evaluate(() => document.fonts.ready);
  await Promise.all(read);
  page.off("response", note);
  assert.ok(read.length <= 14, `${read.length} files`);
  const { script, stylesheet, font } = sizes;
  assert.ok(script > 0 && script <= 75_000, `${script} bytes of scripts`);
  assert.ok(stylesheet > 0 && stylesheet <= 12_000, `${stylesheet} bytes of styles`);
  assert.ok(font > 0 && font <= 24_000, `${font} bytes of fonts`);

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
  await context.close();
});

test("the web server of a job gets a visitor's cookie, and can do nothing with it", async () => {
  const stolen: string[] = [];
  const thief = createServer((request, answer) => {
    stolen.push(request.headers.cookie ?? "");
    answer.writeHead(200, { "content-type": "text/html" }).end("<p>the page of a job</p>");
  });
  await new Promise<void>((ready) => thief.listen(0, "127.0.0.1", ready));
  try {
    const page = await shared.context.newPage();
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
    await page.close();
  } finally {
    thief.closeAllConnections();
    thief.close();
  }
});

test("a link of somebody else does not change the account unasked", async () => {
  await service.ask("v1/users", { method: "POST", body: { name: "matilda" } });
  const { token } = await service.ask<{ token: string }>("v1/tokens", {
    method: "POST",
    body: { user: "matilda" },
  });
  const link = async (): Promise<string> => `${service.url}/#code=${await code(service, token)}`;
  const stranger = await freshContext(browser);
  const first = await stranger.newPage();
  await first.goto(await link());
  await first.getByRole("button", { name: "Continue as matilda" }).waitFor();
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
  await page.getByRole("button", { name: "Continue as matilda" }).click();
  await page.getByLabel("Menu of matilda").waitFor();
  await leave(visited);
});

test("the docs are reached from the menu, searched, and lead back, and nothing breaks their policy", async () => {
  const page = await open("");
  await page.getByLabel("Menu of admin").click();
  await page.getByRole("link", { name: "Docs" }).click();
  await page.getByRole("heading", { level: 1, name: "Documentation" }).waitFor();
  await page.getByLabel("Search the docs").fill("reservation");
  await page.keyboard.press("Enter");
  await page.locator("ul.search a", { hasText: "Concepts" }).click();
  await page.getByRole("heading", { level: 1, name: "Concepts" }).waitFor();
  // It takes seconds of a processor to show all operations: pages.test.ts does.
  const document = {
    openapi: "3.1.0",
    info: { title: "REST", version: "1" },
    paths: { "/v1/jobs": { get: {} } },
  };
  await page.route(`${service.url}/openapi.json`, (route) => route.fulfill({ json: document }));
  await page.getByRole("link", { name: "Try REST" }).click();
  await page.getByText("/v1/jobs", { exact: true }).first().waitFor();
  await page.goBack();
  await page.getByRole("link", { name: "Open Torchyard" }).click();
  await page.getByRole("heading", { name: "Queue" }).waitFor();
  await page.unrouteAll();
});

test("a page's files are fetched before the service has said who asks", async () => {
  const { page } = shared;
  let answer: () => void = () => undefined;
  const held = new Promise<void>((done) => (answer = done));
  await page.route("**/v1/me?**", async (route) => {
    await held;
    await route.continue();
  });
  const fetched = page.waitForResponse(/assets\/Jobs-.*js$/);
  await page.goto(`${service.url}/jobs`);
  await fetched;
  answer();
  await page.getByRole("heading", { name: "Jobs" }).waitFor();
  await page.unrouteAll();
});

/** Opens a page of the service for the administrator. */
async function open(path: string): Promise<Page> {
  await shared.page.goto(`${service.url}/${path}`);
  return shared.page;
}

/** Waits until the service has checked the form without an error. A busy service may omit when the job would start. */
async function checked(page: Page): Promise<void> {
  const said = page.locator("footer").getByRole("status", { includeHidden: true });
  await said
    .filter({ hasText: /^\s*((Starts now|Waits:|Would be refused:).*)?$/s })
    .waitFor({ state: "attached" });
}

/** Trains on digits with a learning rate, to its end. */
async function trained(name: string, lr: number): Promise<Job> {
  const spec = digits(name, { epochs: 1, per_device_batch_size: 256 }) as { config: object };
  const job = await submit(service, { ...spec, config: { ...spec.config, optimizer: { lr } } });
  return reach(service, job.id, "succeeded");
}
