import { expect, test } from "vitest";
import CASES from "../../../tests/numbers.json";
import { ago } from "./ago";
import { bytes, bytesOf } from "./bytes";
import { duration } from "./duration";
import { number, scaled, setting } from "./number";
import { yaml } from "./yaml";

test("durations have two units", () => {
  expect([0, 9.4, 60, 3725, 90_061, NaN].map(duration)).toEqual(["0s", "9s", "1m", "1h 2m", "1d 1h", "—"]);
});

test("ages count from now", () => {
  expect(ago("2026-01-01T00:00:00Z", Date.parse("2026-01-01T00:14:00Z"))).toBe("14m ago");
});

test("numbers and sizes are written and read as the command line does", () => {
  for (const [value, text] of CASES.number as [number | string, string][]) expect(number(value)).toBe(text);
  for (const [value, text] of CASES.setting as [number, string][]) expect(setting(value)).toBe(text);
  for (const [value, text] of CASES.scaled as [number, string][]) expect(scaled(value)).toBe(text);
  for (const [count, text] of CASES.size as [number, string][]) expect(bytes(count)).toBe(text);
  for (const [text, count] of CASES["read size"] as [string, number | null][])
    expect(bytesOf(text)).toBe(count);
});

test("nothing is a dash", () => {
  expect([null, undefined, NaN].map(number)).toEqual(["—", "—", "NaN"]);
});

test("YAML quotes what would be read as something else", () => {
  expect(
    yaml({
      name: "no",
      code: "bundle:sha256:ab",
      list: [1, "a b", null],
      empty: {},
      deep: { key: [{ a: 1, b: "x: y" }] },
    }),
  ).toBe(
    [
      'name: "no"',
      "code: bundle:sha256:ab",
      "list: [1, a b, null]",
      "empty: {}",
      "deep:",
      "  key:",
      "    - a: 1",
      '      b: "x: y"',
    ].join("\n"),
  );
});

test("what an object has by nature is no number", () => {
  const metrics: Readonly<Record<string, number>> = {};
  expect(number(metrics["constructor"])).toBe("—");
});
