/** The page below a path of a real nginx, configured as docs/operating/proxy.md says. */
import assert from "node:assert/strict";
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, connect, type AddressInfo } from "node:net";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import type { Browser } from "playwright-core";
import { launch } from "./chromium.ts";
import { digits, reach, submit, type Job } from "./jobs.ts";
import { leave, signIn } from "./page.ts";
import { Service } from "./service.ts";

const NGINX = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"].find(existsSync);
const DOCS = readFileSync(fileURLToPath(new URL("../../docs/operating/proxy.md", import.meta.url)), "utf8");

let service: Service;
let browser: Browser;
let job: Job;
let nginx: ChildProcess;
let root: string;
const folder = mkdtempSync(join(tmpdir(), "torchyard-nginx-"));

before(async () => {
  if (NGINX === undefined) return;
  [service, browser] = await Promise.all([Service.start(), launch()]);
  job = await submit(service, digits("below-a-path", { epochs: 3000 }));
  await reach(service, job.id, "running");
  const port = await freePort();
  root = `http://127.0.0.1:${port}/torchyard/`;
  writeFileSync(join(folder, "nginx.conf"), configuration(port, service.url));
  const argv = ["-c", join(folder, "nginx.conf"), "-e", join(folder, "error.log")];
  execFileSync(NGINX, ["-t", ...argv], { stdio: "pipe" });
  nginx = spawn(NGINX, argv, { stdio: "ignore" });
  while (!(await listens(port))) await new Promise((later) => setTimeout(later, 20));
});

after(async () => {
  nginx?.kill();
  await browser?.close();
  await service?.stop();
  rmSync(folder, { recursive: true });
});

test("below a path of nginx, a token logs in, a deep link reloads, and the page is live", async (t) => {
  if (NGINX === undefined) return t.skip("nginx is not installed");
  const visited = await signIn(browser, service, `jobs/${job.id}`, { root });
  const { page, context } = visited;
  const [cookie] = await context.cookies();
  assert.equal(cookie?.path, "/");
  await page.reload();
  await page.getByRole("heading", { name: job.name }).waitFor();
  await page.locator(".status.live").waitFor();
  await page.goto(`${root}jobs`);
  await service.ask(`v1/jobs/${job.id}/cancel`, { method: "POST" });
  await page.locator("[data-row]", { hasText: "cancelled" }).waitFor();
  await leave(visited);
});

/** The locations that the documentation shows for a path, in a server of ours. */
function configuration(port: number, target: string): string {
  const shown = [...DOCS.matchAll(/```nginx\n(.*?)```/gs)].map((block) => block[1] ?? "");
  const locations = shown.find((block) => block.includes("location /torchyard/"));
  assert.ok(locations);
  const user = userInfo().uid === 0 ? "user root;" : "";
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
    (name) => `${name}_temp_path ${folder};`,
  );
  return `
daemon off; pid ${folder}/pid; ${user} worker_processes 1;
events {}
http {
  access_log off;
  ${temporary.join("\n  ")}
  server {
    listen 127.0.0.1:${port};
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host $http_host;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    ${locations.replaceAll("http://127.0.0.1:8000", target)}
  }
}
`;
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((ready) => server.listen(0, "127.0.0.1", ready));
  const { port } = server.address() as AddressInfo;
  await new Promise((closed) => server.close(closed));
  return port;
}

async function listens(port: number): Promise<boolean> {
  return new Promise((answer) => {
    const socket = connect(port, "127.0.0.1", () => {
      socket.destroy();
      answer(true);
    });
    socket.once("error", () => answer(false));
  });
}
