/** A terminal in a running job, in a real Chromium against a real service. */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launch } from "./chromium.ts";
import { reach, submit, type Job } from "./jobs.ts";
import { code, freshContext } from "./page.ts";
import { Service } from "./service.ts";

const PROGRAM = `
import http.server, pathlib, threading

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"<title>of the job</title><h1>{self.path}</h1>{self.headers.get('Cookie')}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
print("port", server.server_address[1], flush=True)
server.serve_forever()
`;
/** Where pictures go, if anybody looks at them. */
const { TERMINAL_PICTURES: pictures } = process.env;

let service: Service;
let browser: Browser;
let job: Job;
const folder = mkdtempSync(join(tmpdir(), "torchyard-terminal-"));

before(async () => {
  writeFileSync(join(folder, "wait.py"), PROGRAM);
  service = await Service.start({ allow: folder });
  job = await submit(service, {
    trainer: "script",
    name: "cracks-unet",
    resources: { device: "cpu" },
    config: { code: `file://${folder}`, entrypoint: "wait.py" },
  });
  await reach(service, job.id, "running");
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await service?.stop();
  rmSync(folder, { recursive: true });
});

test("a terminal and a port open at origins of their own, and a terminal ends with its shell and with the job", async () => {
  const context = await freshContext(browser, { viewport: { width: 1440, height: 900 } });
  const page = await context.newPage();
  await page.goto(`${service.url}/jobs/${job.id}#code=${await code(service)}`);
  await page.getByLabel("Allow terminals and ports of my running jobs").check();
  await page.getByRole("button", { name: /^Continue as / }).click();
  const complaints: string[] = [];
  context.on("weberror", (error) => complaints.push(error.error().message));
  context.on("console", (message) => {
    if (/Content Security Policy|Uncaught/.test(message.text())) complaints.push(message.text());
  });
  const tab = context.waitForEvent("page");
  await page.getByRole("button", { name: "More" }).click();
  await page.getByRole("menuitem", { name: "Terminal" }).click();
  const terminal = await tab;
  await terminal.getByText("Connected.").waitFor();
  assert.match(new URL(terminal.url()).host, /^[a-z2-7]{26}\.localhost:[0-9]+$/);
  assert.equal(await terminal.title(), "cracks-unet · Terminal");
  await terminal.keyboard.type("echo $((6 * 7)) of rank $RANK; stty size; ls /proc/self/cwd\n");
  await shows(terminal, /42 of rank 0/);
  assert.equal(await terminal.evaluate("window.opener"), null);
  await looked(terminal);
  await opensPort(page);
  await terminal.bringToFront();
  await terminal.keyboard.type("exit 3\n");
  await terminal.getByText("The shell has ended with exit code 3.").waitFor();
  await terminal.getByRole("button", { name: "Open another shell" }).click();
  await terminal.getByText("Connected.").waitFor();
  await service.ask(`v1/jobs/${job.id}/cancel?now=true`, { method: "POST" });
  await terminal.getByText("The job has ended, and its shells with it.").waitFor();
  assert.deepEqual(complaints, []);
  await context.close();
});

/** Opens the port on which the job's program listens. */
async function opensPort(page: Page): Promise<void> {
  let port: string | undefined;
  while (port === undefined) {
    const log = await service.ask<{ data: { text: string }[] }>(`v1/jobs/${job.id}/logs`);
    port = log.data
      .map(({ text }) => /port (\d+)$/.exec(text.trim())?.[1])
      .find((found) => found !== undefined);
  }
  await page.bringToFront();
  await page.getByRole("button", { name: "More" }).click();
  await page.getByRole("menuitem", { name: "Open port" }).click();
  await page.getByLabel("Port of the job").fill(port);
  const tab = page.context().waitForEvent("page");
  await page.getByRole("button", { name: "Open", exact: true }).click();
  const opened = await tab;
  await opened.getByRole("heading", { name: "/" }).waitFor();
  assert.match(await opened.locator("body").innerText(), /None/);
  assert.match(new URL(opened.url()).host, /^[a-z2-7]{26}\.localhost:[0-9]+$/);
  await opened.close();
}

async function shows(terminal: Page, what: RegExp): Promise<void> {
  await terminal.locator(".xterm-rows").filter({ hasText: what }).waitFor();
}

/** Takes a picture of the terminal in both themes, wide and narrow. */
async function looked(terminal: Page): Promise<void> {
  if (pictures === undefined) return;
  mkdirSync(pictures, { recursive: true });
  await terminal.keyboard.type(
    "ls --color=always -la / | head -12; printf '\\e[31mred \\e[32mgreen \\e[33myellow \\e[34mblue \\e[35mmagenta \\e[36mcyan\\e[0m\\n'\n",
  );
  await shows(terminal, /magenta cyan/);
  for (const width of [1440, 390])
    for (const colorScheme of ["light", "dark"] as const) {
      await terminal.setViewportSize({ width, height: 900 });
      await terminal.emulateMedia({ colorScheme });
      await terminal.waitForTimeout(300);
      await terminal.screenshot({ path: join(pictures, `terminal-${colorScheme}-${width}.png`) });
    }
  await terminal.setViewportSize({ width: 1440, height: 900 });
}
