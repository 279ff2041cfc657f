/** The part of a job that says what it is, its spec in colours, and how long it has been silent. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { schemas } from "../../specs/testing";
import { tokensOf } from "../../specs/tokens";
import { removeAll, serve, settled, show, textOf, textsOf } from "../../testing";
import { argumentLines } from "../../text/argv";
import Facts from "./Facts.svelte";
import Overview from "./Overview.svelte";
import { attempt, view } from "./testing";

beforeEach(() => void vi.useFakeTimers());
afterEach(async () => {
  await removeAll();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

const git = { commit: "0123456789abcdef", branch: "main", dirty: true };
const spec = {
  trainer: "script",
  config: { code: "file:///a", entrypoint: "train.py", args: ["data", "--lr", "1e-3", "-2", "--fast"], git },
  resources: { device: "auto", nodes: 1, devices_per_node: 1 },
  checkpoint: { monitor: "val/loss", mode: "min" },
  stall_timeout: "10m",
  priority: 3,
  max_restarts: 2,
};

test("an overview says what runs, what it watches, where, and only what was set", async () => {
  serve(() => schemas.job);
  const devices = [{ worker: "wrk_1", index: 0, uuid: "u", name: "NVIDIA H200", node: 0, host: null }];
  const host = show(Overview, { job: view({ spec, devices }), attempts: [attempt(1)] });
  await settled();
  const said = textOf(host.querySelector("dl"));
  for (const part of [
    "train.py data --lr 1e-3 -2 --fast",
    "0123456789ab",
    "uncommitted changes",
    "val/loss",
    "H200",
  ])
    expect(said).toContain(part);
  expect(textsOf(host, "dd .line")).toEqual(["data", "--lr 1e-3 -2", "--fast"]);
  const set = textOf(host.querySelector("pre"));
  expect(set).toContain("priority: 3");
  expect(set).not.toContain("max_restarts");
});

test("a recipe has no arguments", () => {
  expect(argumentLines({ trainer: "image-classification", config: {} })).toEqual([]);
});

test("the parts of a line of YAML have kinds, and make the line again", () => {
  const lines = ["  lr: 1e-3", "- a: true", 'args: [--lr, 0.1, "a: b"]', "code: file:///a:b", "plain"];
  for (const line of lines)
    expect(
      tokensOf(line)
        .map(({ text }) => text)
        .join(""),
    ).toBe(line);
  const kinds = (line: string): string[] =>
    tokensOf(line).flatMap(({ text, kind }) => (kind === "mark" ? [] : [`${kind} ${text.trim()}`]));
  expect(kinds("  lr: 1e-3")).toEqual(["key lr", "number 1e-3"]);
  expect(kinds("- a: true")).toEqual(["key a", "word true"]);
  expect(kinds('args: [0.1, "a: b"]')).toEqual(["key args", "number 0.1", 'text "a: b"']);
});

test("how long a running job has reported nothing is said, and in amber from a tenth of its stall_timeout on", () => {
  const shown = (seconds: number, changes = {}): HTMLElement =>
    show(Facts, {
      job: view({ spec, ...changes }),
      attempts: [],
      reportedAt: Date.now() - seconds * 1000,
      disabled: false,
      onchoose: () => undefined,
    });
  expect(textOf(shown(30))).not.toContain("last progress");
  expect(textOf(shown(240).querySelector(".silent"))).toBe("last progress 4m ago");
  const patient = { spec: { ...spec, stall_timeout: "2h" } };
  expect(textOf(shown(240, patient))).toContain("last progress 4m ago");
  expect(shown(240, patient).querySelector(".silent")).toBeNull();
  expect(textOf(shown(240, { state: "succeeded" }))).not.toContain("last progress");
});
