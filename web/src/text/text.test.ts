import { expect, test } from "vitest";
import { ago } from "./ago";
import { bytes } from "./bytes";
import { duration } from "./duration";
import { number, scaled, setting } from "./number";
import { yaml } from "./yaml";

test("durations have two units", () => {
  expect([0, 9.4, 60, 3725, 90_061, NaN].map(duration)).toEqual(["0s", "9s", "1m", "1h 2m", "1d 1h", "—"]);
});

test("ages are told from now", () => {
  expect(ago("2026-01-01T00:00:00Z", Date.parse("2026-01-01T00:14:00Z"))).toBe("14m ago");
});

test("bytes have binary prefixes", () => {
  expect([0, 900, 1536, 2 ** 20 - 1, 85_899_345_920].map(bytes)).toEqual([
    "0 B",
    "900 B",
    "1.5 KiB",
    "1.0 MiB",
    "80 GiB",
  ]);
});

test("numbers have four digits, and what is no number keeps its name", () => {
  expect([0.51234, 12, 1e-7, 1234567.8, "NaN", "-Infinity", null].map(number)).toEqual([
    "0.5123",
    "12",
    "1.00e-7",
    "1.23e+6",
    "NaN",
    "-∞",
    "—",
  ]);
  expect(scaled(33_900_000)).toBe("33.9 M");
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

test("a number that was set has four digits, and a whole one all of its own", () => {
  expect([0.03162277660168379, 0.001, 1e-7, 1234567, 64].map(setting)).toEqual([
    ...["0.03162", "0.001", "1e-7", "1234567", "64"],
  ]);
});
