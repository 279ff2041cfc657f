/** Workers and the settings of a team, by keys: three roles are offered what they may do, and nothing else. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launch } from "./chromium.ts";
import { digits, reach, submit } from "./jobs.ts";
import { leave, visit } from "./page.ts";
import { Service } from "./service.ts";

let service: Service;
let browser: Browser;
const tokens: Record<string, string> = {};

before(async () => {
  [service, browser] = await Promise.all([Service.start({ slots: 2 }), launch()]);
  for (const role of ["viewer", "member"]) {
    await service.ask("v1/users", { method: "POST", body: { name: role, role } });
    const made = { name: "first", user: role };
    tokens[role] = (await service.ask<{ token: string }>("v1/tokens", { method: "POST", body: made })).token;
  }
});

after(async () => {
  await browser?.close();
  await service?.stop();
});

/** Sets the focus by Tab alone. */
async function tabTo(page: Page, name: string): Promise<void> {
  for (let step = 0; step < 80; step++) {
    await page.keyboard.press("Tab");
    const focused = await page.evaluate(() => {
      const { activeElement: element } = document;
      return (
        element?.getAttribute("aria-label") ??
        (element as HTMLInputElement | null)?.labels?.[0]?.textContent ??
        element?.textContent
      );
    });
    if (focused?.trim().startsWith(name)) return;
  }
  throw new Error(`Tab does not reach ${name}`);
}

test("an administrator adds a user by keys, whose first token is shown once and signs in", async () => {
  const visited = await visit(browser, service, "settings?section=users");
  const { page } = visited;
  await page.getByRole("row", { name: /^viewer/ }).waitFor();
  await tabTo(page, "Add a user");
  await page.keyboard.press("Enter");
  await page.getByRole("form", { name: "Add a user" }).waitFor();
  await tabTo(page, "Name");
  await page.keyboard.type("olga");
  await page.keyboard.press("Tab");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  const token = await page.locator(".once code").innerText();
  await page.getByRole("button", { name: "I have saved it" }).press("Enter");
  assert.equal(await page.getByText(token).count(), 0);
  const { role } = await service.ask<{ role: string }>("v1/me", { token });
  assert.equal(role, "operator");
  await page.goto(`${service.url}/settings?section=audit&action=user`);
  await page.getByRole("cell", { name: "olga as operator" }).waitFor();
  await leave(visited);
});

test("a browser is signed out from another one, which stays", async () => {
  const [here, lost] = [
    await visit(browser, service, "settings?section=sessions", tokenOf("member")),
    await visit(browser, service, "", tokenOf("member")),
  ];
  await here.page.reload();
  await here.page.getByText("this browser").waitFor();
  await here.page.getByRole("button", { name: /^End the session/ }).press("Enter");
  await here.page.getByText("Signing a browser at").waitFor();
  await here.page.goto(`${service.url}/settings?section=tokens`); // what waits is sent as the page is left
  await lost.page.getByLabel("Personal token").waitFor();
  await here.page.getByRole("button", { name: "Revoke first" }).waitFor();
  await leave(here);
  await leave(lost);
});

test("a form that was half filled is there again after the session has ended", async () => {
  const visited = await visit(browser, service, "submit", tokenOf("member"));
  const { page } = visited;
  const name = page.getByRole("textbox", { name: "name", exact: true });
  await name.fill("half-filled");
  await page.waitForFunction(() =>
    [...document.querySelectorAll("textarea")].some(({ value }) => value.includes("half-filled")),
  );
  const { data } = await service.ask<{ data: { id: string }[] }>("v1/sessions", tokenOf("member"));
  for (const { id } of data)
    await service.ask(`v1/sessions/${id}`, { method: "DELETE", ...tokenOf("member") });
  await page.getByText("Your session has ended.").waitFor();
  await page.getByLabel("Personal token").fill(tokens["member"] ?? "");
  await page.keyboard.press("Enter");
  await name.waitFor();
  assert.equal(await name.inputValue(), "half-filled");
  await leave(visited);
});

test("who loses a role while a page is open is offered what the new one may, once something is refused", async () => {
  const made = { name: "demoted", role: "admin" };
  await service.ask("v1/users", { method: "POST", body: made });
  const { token } = await service.ask<{ token: string }>("v1/tokens", {
    method: "POST",
    body: { name: "first", user: made.name },
  });
  const visited = await visit(browser, service, "settings?section=users", { token });
  const { page } = visited;
  await page.getByRole("row", { name: /^viewer/ }).waitFor();
  await service.ask(`v1/users/${made.name}`, { method: "PATCH", body: { role: "member" } });
  await page.getByLabel("Role of viewer").selectOption("operator");
  await page.getByText("No such section, or your role or token lacks its scope.").waitFor();
  const sections = page.getByRole("navigation", { name: "Settings" }).getByRole("link");
  assert.equal((await sections.allInnerTexts()).includes("Audit"), false);
  const { role } = await service.ask<{ role: string }>("v1/me", tokenOf("viewer"));
  assert.equal(role, "viewer");
  await service.ask(`v1/users/${made.name}`, { method: "PATCH", body: { disabled: true } });
  await page.getByRole("link", { name: "Jobs", exact: true }).click();
  await page.getByText("Your session has ended.").waitFor();
  await leave(visited);
});

test("a worker shows who held its devices; it is drained by keys, and that is undone", async () => {
  const job = await submit(service, digits("holds-it", { epochs: 300 }));
  await reach(service, job.id, "running");
  const visited = await visit(browser, service, "");
  const { page } = visited;
  await page.keyboard.press("g");
  await page.keyboard.press("w");
  await page.getByRole("heading", { name: "Workers" }).waitFor();
  await page.locator("[data-row] a").first().waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.locator(".lane a[aria-label='holds-it held it']").first().waitFor({ timeout: 40_000 });
  await page.getByRole("slider").focus();
  const readout = page.locator(".readout").getByText("holds-it").filter({ visible: true });
  // Of the newest slots nothing may be known yet, and the job may hold its device in the last one alone.
  await page.keyboard.press("End");
  for (let slot = 0; slot < 10 && (await readout.count()) === 0; slot++)
    await page.keyboard.press("ArrowLeft");
  await readout.first().waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Drain" }).press("Enter");
  await page.getByText("its jobs save a checkpoint").waitFor();
  await page.keyboard.press("z");
  await page.getByRole("button", { name: "Drain" }).waitFor();
  const { data } = await service.ask<{ data: { state: string }[] }>("v1/workers");
  assert.deepEqual(
    data.map(({ state }) => state),
    ["ready"],
  );
  await service.ask(`v1/jobs/${job.id}/cancel`, { method: "POST" });
  await leave(visited);
});

test("a viewer and a member are offered what they may, and the page asks for nothing else", async () => {
  for (const [role, extra] of [
    ["viewer", []],
    ["member", ["Secrets"]],
  ] as const) {
    const visited = await visit(browser, service, "settings", tokenOf(role));
    const { page } = visited;
    const refused: string[] = [];
    page.on("response", (answer) => {
      if (answer.status() === 403) refused.push(answer.url());
    });
    const sections = page.getByRole("navigation", { name: "Settings" }).getByRole("link");
    await sections.first().waitFor();
    assert.deepEqual(await sections.allInnerTexts(), [
      ...["Tokens", "Sessions", "Your usage", "Notifications"],
      ...extra,
    ]);
    for (const section of ["sessions", "usage", "users", "audit"])
      await page.goto(`${service.url}/settings?section=${section}`);
    await page.getByText("No such section").waitFor();
    await page.goto(`${service.url}/workers`);
    await page.locator("[data-row] a").first().press("Enter");
    await page.getByRole("slider").waitFor();
    assert.equal(await page.getByRole("button", { name: "Drain" }).count(), 0);
    assert.deepEqual(refused, []);
    await leave(visited);
  }
});

test("the use of the devices is downloaded as a CSV, in which each cell begins with a name", async () => {
  const labels = { project: '=1+1, "x"' };
  const job = await submit(service, { ...digits("used"), labels });
  await reach(service, job.id, "succeeded");
  const visited = await visit(browser, service, "workers?usage=label");
  const { page } = visited;
  await page.getByRole("cell", { name: `project=${labels.project}`, exact: true }).waitFor();
  const [saved] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "CSV" }).click(),
  ]);
  assert.equal(saved.suggestedFilename(), "usage.csv");
  const [head, ...rows] = (await readFile(await saved.path(), "utf8")).trim().split("\n");
  assert.match(head ?? "", /^day,owner,label,/);
  const begun = rows.map((row) => /^\d{4}-\d\d-\d\d,(.*?),[\d.,]*$/.exec(row)?.[1]);
  assert.deepEqual(begun, [`admin,"project==1+1, ""x"""`]);
  await leave(visited);
});

test("a job that waits says between which times it starts, and how many of such estimates held", async () => {
  const held = await submit(service, {
    ...digits("holds-all", { epochs: 5000 }),
    resources: { device: "cpu", devices_per_node: 2 },
  });
  await reach(service, held.id, "running");
  remember({ scores: 200, held: 158 });
  const waits = await submit(service, digits("waits-for-it"));
  const visited = await visit(browser, service, "");
  const queue = visited.page.getByRole("region", { name: /^Queue/ });
  await queue
    .getByTitle(/Starts between \d\d:\d\d and .+; 79% of the last 200 estimates were right\./)
    .waitFor();
  await visited.page.goto(`${service.url}/jobs/${waits.id}`);
  await visited.page
    .getByText(/79% of the last 200 estimates were right/)
    .first()
    .waitFor();
  for (const { id } of [held, waits]) await service.ask(`v1/jobs/${id}/cancel`, { method: "POST" });
  await leave(visited);
});

/** Stores as many estimates of each length of a wait that came true or not, as weeks of use would. */
function remember({ scores, held }: { scores: number; held: number }): void {
  const database = new DatabaseSync(join(service.folder, "torchyard.db"), { timeout: 10_000 });
  const forecast = database.prepare(
    "INSERT INTO forecasts (job_id, attempt, hour, made_at, wait_us, bucket, scored_at, log_ratio, held) VALUES (?, 1, 0, ?, ?, ?, ?, 0, ?)",
  );
  const calibration = database.prepare("INSERT OR REPLACE INTO calibrations VALUES (?, 0.5, ?, ?, ?)");
  const minute = 60_000_000;
  for (let bucket = 0; bucket < 5; bucket++) {
    calibration.run(bucket, scores, held, scores);
    for (let number = 0; number < scores; number++)
      forecast.run(`job_${bucket}_${number}`, number, minute, bucket, number, Number(number < held));
  }
  database.close();
}

function tokenOf(role: string): { token?: string } {
  const token = tokens[role];
  return token === undefined ? {} : { token };
}
