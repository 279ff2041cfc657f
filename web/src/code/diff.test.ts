import { expect, test } from "vitest";
import { runsOf } from "./diff";

test("lines before the first place of a file are its head, whatever their signs", () => {
  const diff =
    "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n--- removed\n+++ added\n same\ndiff --git a/y b/y\n";
  expect(runsOf(diff).map(({ kind, text }) => [kind, text.split("\n").length])).toEqual([
    ...[["file", 3] as const, ["place", 1] as const, ["removed", 1] as const],
    ...[["added", 1] as const, ["same", 1] as const, ["file", 1] as const],
  ]);
});

test("a diff whose signs alternate without end is drawn as a bounded number of runs", () => {
  const lines = Array.from({ length: 20_000 }, (_, at) => (at % 2 ? "+a" : "-b"));
  const runs = runsOf(["@@ @@", ...lines].join("\n"));
  expect(runs.length).toBe(3_001);
  expect(runs.map(({ text }) => text).join("\n")).toContain(lines.slice(-2).join("\n"));
});
