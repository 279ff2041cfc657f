/** Targets of notifications on a real page: a receiver gets what it sends, and the browser tells of jobs itself. */
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import type { Browser } from "playwright-core";
import { launch } from "./chromium.ts";
import { digits, reach, submit } from "./jobs.ts";
import { leave, signIn, visit } from "./page.ts";
import { Service } from "./service.ts";

const NAME = "yard.test";

let service: Service;
let browser: Browser;
let receiver: Server;
const received: { headers: IncomingHttpHeaders; body: string }[] = [];

before(async () => {
  receiver = createServer((request, answer) => {
    let body = "";
    request.on("data", (part: Buffer) => (body += part.toString()));
    request.on("end", () => {
      received.push({ headers: request.headers, body });
      answer.end();
    });
  });
  await once(receiver.listen(0, "127.0.0.1"), "listening");
  const settings = {
    TORCHYARD_ALLOWED_HOSTS: NAME,
    TORCHYARD_NOTIFY_ALLOW: `127.0.0.1/32:${port()}`,
  };
  [service, browser] = await Promise.all([Service.start({ settings }), launch([NAME])]);
});

after(async () => {
  await browser?.close();
  await service?.stop();
  receiver?.close();
});

function port(): number {
  return (receiver.address() as AddressInfo).port;
}

test("a target is added, tried and removed", async () => {
  const visited = await visit(browser, service, "settings?section=notifications");
  const { page } = visited;
  await page.getByRole("button", { name: "Add a channel" }).click();
  await page.getByRole("textbox", { name: "Name" }).fill("alerts");
  await page.getByLabel("URL").fill(`http://127.0.0.1:${port()}/hook`);
  await page.getByRole("button", { name: "Add", exact: true }).click();
  const secret = await page.locator(".secret code").innerText();
  await page.getByRole("button", { name: "Test" }).click();
  await page.locator("td [role=status]", { hasText: "delivered" }).waitFor();
  const [{ headers, body }] = received as [(typeof received)[0]];
  const signed = `${headers["webhook-id"] as string}.${headers["webhook-timestamp"] as string}.${body}`;
  const mac = createHmac("sha256", Buffer.from(secret.replace("whsec_", ""), "base64")).update(signed);
  assert.equal(headers["webhook-signature"], `v1,${mac.digest("base64")}`);
  assert.equal((JSON.parse(body) as { type: string }).type, "test");
  await page.getByRole("button", { name: "alerts" }).click();
  await page.getByRole("table", { name: "Messages to alerts" }).getByText("delivered").waitFor();
  await page.reload();
  await page.getByRole("button", { name: "alerts" }).waitFor();
  assert.equal(await page.locator(".secret").count(), 0);
  await page.getByRole("button", { name: "Remove" }).click();
  await page.getByText("No notification channels").waitFor();
  await leave(visited);
});

test("the browser tells of a job that ends, once it was allowed", async () => {
  const visited = await visit(browser, service, "settings?section=notifications");
  const { page } = visited;
  // The headless Chromium of the lock shows no notifications, and says that they are denied.
  await page.addInitScript(() => {
    const shown: string[] = [];
    function Recorded(title: string): void {
      shown.push(title);
    }
    Object.assign(window, { shown, Notification: Object.assign(Recorded, { permission: "granted" }) });
  });
  await page.reload();
  await page.getByLabel("a job of mine ends or is paused").check();
  await page.getByRole("link", { name: "Jobs" }).click();
  const job = await submit(service, digits("notified"));
  await reach(service, job.id, "succeeded");
  await page.waitForFunction(() =>
    (window as unknown as { shown: string[] }).shown.includes("notified succeeded"),
  );
  await leave(visited);
});

test("a plain-HTTP address says why the browser tells nothing, and copies a new token", async () => {
  const { port: ofService } = new URL(service.url);
  const visited = await signIn(browser, service, "settings?section=notifications", {
    root: `http://${NAME}:${ofService}/`,
  });
  const { page } = visited;
  await page.getByText("Browser notifications need HTTPS").waitFor();
  await page.getByRole("link", { name: "Tokens", exact: true }).click();
  await page.getByRole("button", { name: "Create token" }).click();
  await page.getByRole("textbox", { name: "Name" }).fill("laptop");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  const token = await page.locator(".once code").innerText();
  await page.getByRole("button", { name: "Copy", exact: true }).click();
  await page.getByText("copied", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Create token" }).click();
  await page.getByRole("textbox", { name: "Name" }).press("Control+v");
  assert.equal(await page.getByRole("textbox", { name: "Name" }).inputValue(), token);
  await leave(visited);
});
