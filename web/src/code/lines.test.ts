import { expect, test } from "vitest";
import { changesOf } from "./changes";
import { lineDiff } from "./lines";

test("what differs is shown with three lines around it, and where it is", () => {
  const old = Array.from({ length: 30 }, (_, line) => `line ${line + 1}`);
  const now = old.flatMap((line, at) => (at === 9 ? ["other"] : at === 24 ? [] : [line]));
  expect(lineDiff(`${old.join("\n")}\n`, `${now.join("\n")}\n`).split("\n")).toEqual([
    ...[
      "@@ -7 +7 @@",
      " line 7",
      " line 8",
      " line 9",
      "-line 10",
      "+other",
      " line 11",
      " line 12",
      " line 13",
    ],
    ...["@@ -22 +22 @@", " line 22", " line 23", " line 24", "-line 25", " line 26", " line 27", " line 28"],
  ]);
  expect(lineDiff("same\n", "same\n")).toBe("");
  expect(lineDiff("", "new\n")).toBe("@@ -1 +1 @@\n+new");
  expect(lineDiff("old\n", "")).toBe("@@ -1 +1 @@\n-old");
  expect(lineDiff("x\n", "x")).toBe("@@ -1 +1 @@\n-x\n+x\n\\ No newline at end of file");
  expect(lineDiff("x", "x\ny")).toContain("-x\n\\ No newline at end of file\n+x\n+y\n\\ No newline");
});

test("applying a difference to the old text gives the new one", () => {
  let seed = 7;
  const random = (most: number): number => (seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648) % most;
  for (let round = 0; round < 200; round++) {
    const [old, now] = [0, 1].map(() => Array.from({ length: random(12) }, () => "abc"[random(3)] ?? ""));
    const [before, after] = [old, now].map((lines) => (lines ?? []).map((line) => `${line}\n`).join(""));
    expect(applied(before ?? "", lineDiff(before ?? "", after ?? ""))).toBe(after);
  }
});

test("texts that have little in common are replaced as a whole", () => {
  const text = (name: string): string => Array.from({ length: 5_000 }, (_, at) => `${name}${at}\n`).join("");
  const lines = lineDiff(text("a"), text("b")).split("\n");
  expect([lines.length, lines[1], lines[5_001]]).toEqual([10_001, "-a0", "+b0"]);
});

test("files are added, removed, changed, or too large to say", () => {
  const file = (path: string, sha256: string | null, size = 1) => ({ path, sha256, size, executable: false });
  const old = [file("a", "1"), file("b", "1"), file("c", null), file("d", null), file("same", "1")];
  const now = [file("b", "2"), file("c", null), file("d", null, 2), file("e", "1"), file("same", "1")];
  expect(changesOf(old, now).map(({ path, kind }) => `${path} ${kind}`)).toEqual([
    ...["a removed", "b changed", "c unknown", "d changed", "e added"],
  ]);
});

function applied(before: string, diff: string): string {
  const old = before.split("\n").slice(0, -1);
  const result: string[] = [];
  let next = 0;
  for (const line of diff === "" ? [] : diff.split("\n")) {
    const place = /^@@ -(\d+)/.exec(line);
    if (place) while (next < Number(place[1]) - 1) result.push(old[next++] ?? "");
    else if (line.startsWith("+")) result.push(line.slice(1));
    else {
      if (line.startsWith(" ")) result.push(old[next] ?? "");
      next++;
    }
  }
  return [...result, ...old.slice(next)].map((line) => `${line}\n`).join("");
}
