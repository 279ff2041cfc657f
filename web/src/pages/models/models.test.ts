import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { ModelVersion, ModelView } from "../../api/wire";
import { click, removeAll, serve, settled, show, signIn, textOf, textsOf } from "../../testing";
import Models from "./Models.svelte";

const AT = "2026-01-01T00:00:00Z";

function version(number: number, changes: Record<string, unknown> = {}): ModelVersion {
  return {
    ...{ owner: "ada", name: "digits", version: number, trainer: "segmentation", epoch: 3, step: 1200 },
    ...{
      metrics: { "train/loss": 0.5, "val/iou": 0.7 },
      files: [],
      size: 10,
      sha256: "0",
      stored_bytes: 2048,
    },
    ...{ job_id: "job_1", checkpoint_id: "ckpt_1", created_at: AT },
    ...changes,
  } as unknown as ModelVersion;
}

function model(changes: Record<string, unknown> = {}): ModelView {
  return {
    ...{ owner: "ada", name: "digits", visibility: "private", versions: 2, stored_bytes: 4096 },
    newest: version(3),
    ...changes,
  } as unknown as ModelView;
}

beforeEach(() => {
  vi.useFakeTimers();
  signIn("member", "jobs:read", "jobs:write");
});

afterEach(async () => {
  vi.runOnlyPendingTimers();
  await removeAll();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("models are listed, and changed by their owner alone", async () => {
  serve(() => ({ data: [model(), model({ owner: "bob", visibility: "team" })], has_more: false }));
  const host = show(Models, {});
  await settled();
  const rows = [...host.querySelectorAll("tbody tr")];
  expect(rows.map((row) => textsOf(row, "td").slice(0, 4))).toEqual([
    ["digits", "ada", "2", "4.0 KiB"],
    ["digits", "bob", "2", "4.0 KiB"],
  ]);
  expect(rows.map((row) => textOf(row).includes("Delete"))).toEqual([true, false]);
});

test("a model opens its versions, with their job and a download", async () => {
  const asked = serve(({ path }) =>
    path.endsWith("/versions")
      ? { data: [version(3), version(1, { job_id: null })], has_more: false }
      : path === "v1/links"
        ? { path: "/v1/file" }
        : { data: [model({ owner: "a@b" })], has_more: false },
  );
  const host = show(Models, {});
  await settled();
  click(host, "digits");
  flushSync();
  await settled();
  expect(asked.at(-1)?.path).toBe("v1/models/a%40b/digits/versions");
  const inner = [...host.querySelectorAll("table[aria-label='Versions of digits'] tbody tr")];
  expect(inner.map((row) => textOf(row.querySelector("td")))).toEqual(["@3", "@1"]);
  expect(textOf(inner[0])).toContain("val/iou 0.7 train/loss 0.5");
  expect(inner.map((row) => row.querySelector("a")?.getAttribute("href")?.endsWith("jobs/job_1"))).toEqual([
    true,
    undefined,
  ]);
  click(inner[1] as Element, "download");
  await settled();
  expect(asked.at(-1)?.body).toEqual({ path: "/v1/models/a%40b/digits/versions/1/download" });
});

test("an administrator shares and deletes a model; a deletion waits", async () => {
  signIn("admin", "jobs:read", "jobs:write");
  let all = [model()];
  const asked = serve(({ method }) => {
    if (method === "PATCH") all = [model({ visibility: "team" })];
    if (method === "DELETE") all = [];
    return { data: all, has_more: false };
  });
  const host = show(Models, {});
  await settled();
  click(host, "Share");
  await settled();
  expect(asked.find((each) => each.method === "PATCH")?.body).toEqual({ visibility: "team" });
  expect(textOf(host)).toContain("everybody");
  click(host, "Delete");
  await settled();
  expect(asked.some((each) => each.method === "DELETE")).toBe(false);
  expect(host.querySelector("tbody tr")).toBeNull();
  await vi.advanceTimersByTimeAsync(5_000);
  await settled();
  expect(asked.find((each) => each.method === "DELETE")?.path).toBe("v1/models/ada/digits");
});

test("without a model the page says how one comes about, and a failure what it is", async () => {
  let answer: unknown = { data: [], has_more: false };
  serve(() => answer);
  const none = show(Models, {});
  await settled();
  expect(textOf(none)).toContain("torchyard models add NAME JOB/best");
  answer = null;
  const refused = show(Models, {});
  await settled();
  expect(textOf(refused.querySelector("[role=alert]"))).toContain(
    "The models cannot be read. There is none.",
  );
});
