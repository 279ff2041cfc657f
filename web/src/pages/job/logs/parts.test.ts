import { expect, test } from "vitest";
import { spans } from "./ansi";
import { partsOf } from "./parts";
import { matchAfter, matches } from "./search";

function parts(text: string, query: string): (string | boolean)[][] {
  const read = spans(text);
  const shown = read.map((span) => span.text).join("");
  return partsOf(read, matches(shown, query)).map((part) => [part.text, part.hit]);
}

test("a match is marked across colours, whose text stays as it is", () => {
  expect(parts("out of \x1b[31mmem\x1b[0mory", "memory")).toEqual([
    ["out of ", false],
    ["mem", true],
    ["ory", true],
  ]);
  expect(parts("a b a", "a")).toEqual([
    ["a", true],
    [" b ", false],
    ["a", true],
  ]);
  expect(parts("nothing", "x")).toEqual([["nothing", false]]);
});

test("matches are a ring, which begins at its first or last", () => {
  const lines = [3, 5, 9].map((line) => ({ line })) as unknown as Parameters<typeof matchAfter>[0];
  const after = (current: number, by: 1 | -1): number | undefined => matchAfter(lines, current, by)?.line;
  expect([after(-1, 1), after(-1, -1), after(2, 1), after(0, -1), after(0, 1)]).toEqual([3, 9, 3, 9, 5]);
  expect(matchAfter([], -1, 1)).toBeUndefined();
});
