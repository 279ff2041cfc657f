import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { href, navigate, route } from "../router.svelte";
import { read } from "../specs/reading";
import { changesOf, click, removeAll, serve, settled, show, signIn, textOf } from "../testing";
import { digits } from "./digits";
import FirstJob from "./FirstJob.svelte";

const FIRST_HOUR = join(import.meta.dirname, "../../../docs/first-hour.md");

beforeEach(() => {
  vi.stubGlobal("scrollTo", () => undefined);
  navigate(href(""));
  signIn("member", "jobs:read", "jobs:write", "cluster:read");
});

afterEach(async () => {
  await removeAll();
  vi.unstubAllGlobals();
  navigate(href(""));
});

/** Clicks on the example where workers have so many devices. Returns the jobs that were submitted. */
async function run(...devices: readonly number[]): Promise<readonly unknown[]> {
  const data = devices.map((count) => ({ devices: Array.from({ length: count }, () => ({})) }));
  const asked = serve(({ path }) => (path === "v1/workers" ? { data } : { id: "job_1" }));
  const host = show(FirstJob, { sentence: "No jobs yet." });
  click(host, "Run the digits example");
  host.querySelector("button")?.click(); // a double click is one job
  await settled();
  return changesOf(asked).map(({ method, path, body }) => {
    expect([method, path]).toEqual(["POST", "v1/jobs"]);
    return body;
  });
}

test("one click submits the job of the first hour and opens it", async () => {
  const text = /> digits\.yaml <<'END'\n(.*?)\nEND/s.exec(readFileSync(FIRST_HOUR, "utf8"))?.[1] ?? "";
  expect(await run(1, 4)).toEqual([read(text).document]);
  expect([route().page, route().id]).toEqual(["job", "job_1"]);
});

test("the example takes one device where no worker has two, and two where none is known", async () => {
  expect(await run(1)).toEqual([digits(1)]);
  expect(await run()).toEqual([digits(2)]);
});

test("a refused example says why, and can be sent again", async () => {
  serve(({ path }) => (path === "v1/workers" ? { data: [] } : null));
  const host = show(FirstJob, { sentence: "No jobs yet." });
  click(host, "Run the digits example");
  await settled();
  expect(textOf(host.querySelector("[role=alert]"))).toContain(
    "The example was not submitted. There is none.",
  );
  expect(host.querySelector<HTMLButtonElement>("button.primary")?.disabled).toBe(false);
});
