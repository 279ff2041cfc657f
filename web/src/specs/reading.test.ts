import { expect, test } from "vitest";
import { yaml } from "../text/yaml";
import { Fault } from "./fault";
import { keyOf } from "./places";
import { lineOf, read } from "./reading";

function fault(text: string): string {
  try {
    read(text);
  } catch (error) {
    if (error instanceof Fault) return `${error.line}: ${error.message}`;
    throw error;
  }
  return "none";
}

test("a spec is read with the line of each key", () => {
  const text = `# a run\ntrainer: script\nconfig:\n  args: ["--lr", "1e-3"]\n  training: {epochs: 5, "max_steps": null}\nafter:\n  - job: first\n`;
  const found = read(text);
  expect(found.document).toEqual({
    trainer: "script",
    config: { args: ["--lr", "1e-3"], training: { epochs: 5, max_steps: null } },
    after: [{ job: "first" }],
  });
  expect(lineOf(found, ["config", "training", "epochs"])).toBe(5);
  expect(lineOf(found, ["after", "0", "job"])).toBe(7);
  expect(lineOf(found, ["config", "nothing", "there"])).toBe(3);
  expect(lineOf(found, ["priority"])).toBe(1);
  const [start, end] = found.places.get(keyOf(["config", "training", "epochs"]))?.value ?? [0, 0];
  expect(text.slice(start, end)).toBe("5");
});

test.each([
  ["a: 1\nb: [", "2:"],
  ["a: 1\na: 2", "2: has the key a twice"],
  ["b:\n  __proto__: {admin: true}", "2: has the key __proto__"],
  ["a: &x [1]\nb: *x", "1: has an anchor (&)"],
  ["b: *x", "1:"],
  ["a: !!js/function 'x'", "1: has a tag (!)"],
  ["a: !!str 1", "1: has a tag (!)"],
  ["<<: {a: 1}", "1: has a merge"],
  ["? [a, b]\n: 1", "1: has a key that is not a string"],
  ["a: 1\n# ---\n---\nb: 2", "3: begins a second document"],
  ["seed: 010", "1: has 010, whose base is not clear"],
  ["a: {b: [1, -07]}", "1: has -07"],
  ["a: !!python/object/apply:os.system [ls]", "1: has a tag (!)"],
  ["", "1: is empty"],
  ["# nothing", "1:"],
  ["- a\n- b", "1: is not a mapping"],
  ["word", "1: is not a mapping"],
  ["a: 1\nb: .inf", "2: has the number Infinity"],
  ["a: .nan", "1: has the number NaN"],
  ["seed: 12345678901234567890", "1: has the number"],
  [`a: ${"[".repeat(200)}${"]".repeat(200)}`, "1:"],
  [`a: ${"x".repeat(70_000)}`, "1: has 70003 bytes"],
  ["a:\n\t- 1", "2:"],
])("what is no plain spec is refused with its line: %j", (text, said) => {
  expect(fault(text)).toMatch(new RegExp(`^${said.replace(/[&()*[\]^]/g, "\\$&")}`));
});

test.each<[string, unknown]>([
  ["a: 0x10", 16],
  ["a: 1e-3", 0.001],
  ["a: 1e999", "1e999"],
  ["a: 1_000", "1_000"],
  ["a: no", "no"],
  ["a: 'on'", "on"],
  ["a: 2026-01-01", "2026-01-01"],
  ['a: "010"', "010"],
  ["a: b:c", "b:c"],
  ["a: 'b: c'", "b: c"],
  ["a: # nothing", null],
  ["a: 1\r\n", 1],
  ["\ufeffa: 1", 1],
  ['{"a": 1}', 1],
  ["--- \na: 1\n...\n", 1],
])("a value is what it looks like: %j", (text, value) => {
  expect(read(text).document).toEqual({ a: value });
});

test("any key is a key of its own", () => {
  const found = read("constructor: 1\ntoString: {hasOwnProperty: 2}\n").document;
  expect(Object.entries(found)).toEqual([
    ["constructor", 1],
    ["toString", { hasOwnProperty: 2 }],
  ]);
});

test("64 KiB are read, and a byte more is refused", () => {
  const text = `a: ${"x".repeat(65_533)}`;
  expect([fault(text), fault(`${text}x`)]).toEqual(["none", "1: has 65537 bytes; the limit is 65536"]);
});

test("a billion laughs are refused before they are made", () => {
  const rows = Array.from(
    { length: 9 },
    (_, i) => `l${i + 1}: &l${i + 1} [${Array(9).fill(`*l${i}`).join(", ")}]`,
  );
  expect(fault(["l0: &l0 ha", ...rows].join("\n"))).toBe(
    "1: has an anchor (&): write values where they belong",
  );
});

test("whatever is typed is read, or is a fault", () => {
  const text = `name: "a"\nconfig:\n  args: ["--lr", '1e-3', {a: [b]}]\n  note: |\n    two\n    lines\nafter:\n  - job: first\n`;
  const marks = [
    "&a",
    "*a",
    "!!set",
    "<<",
    ": ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    "|",
    ">",
    "%",
    "@",
    "`",
    "\t",
    "\n",
    "#",
    "'",
    '"',
    "\u0000",
    "\ud800",
  ];
  let state = 7;
  const below = (most: number): number => (state = (state * 48271) % 2147483647) % most;
  const mutate = (): string => {
    let made = text;
    for (let edits = below(4) + 1; edits > 0; edits--) {
      const place = below(made.length);
      made = made.slice(0, place) + (marks[below(marks.length)] ?? "") + made.slice(place + below(3));
    }
    return made;
  };
  for (let round = 0; round < 3_000; round++) expect(fault(mutate())).toMatch(/^(none|\d+: )/);
});

test("what is written is read as the same", () => {
  const spec = {
    name: "digits",
    labels: { ".5": "yes", on: ".inf", null: "~", "a b": "x: y" },
    config: { optimizer: { lr: 1e-7, weight_decay: 1e21 }, args: ["--a=1", "", "two\nlines", "#no", "1.5"] },
    after: [{ job: "first", on: "failed" }],
    ema: {},
    nothing: null,
  };
  expect(read(yaml(spec)).document).toEqual(spec);
  expect(yaml({ lr: 1e-7 })).toBe("lr: 1.0e-7"); // as the command line's YAML 1.1 has numbers
});
