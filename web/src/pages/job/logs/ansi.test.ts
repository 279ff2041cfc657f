import { describe, expect, test } from "vitest";
import { plain, spans, visible } from "./ansi";

const texts = (line: string): string[] => spans(line).map((span) => span.text);

describe("spans", () => {
  test("reads colours and their end", () => {
    const [red, rest] = spans("\x1b[31mfailed\x1b[0m after 3 s");
    expect(red).toMatchObject({ text: "failed", color: "red" });
    expect(rest).toMatchObject({ text: " after 3 s", color: null });
  });

  test("reads 256 colours and true colours", () => {
    expect(spans("\x1b[38;5;196mx")[0]?.color).toBe("rgb(255 0 0)");
    expect(spans("\x1b[1;38;2;1;2;300my")[0]).toMatchObject({ color: "rgb(1 2 255)", bold: true });
    expect(spans("\x1b[48;5;1mz")[0]?.background).toBe("red");
  });

  test("keeps markup as text", () => {
    expect(texts("<script>alert(1)</script>")).toEqual(["<script>alert(1)</script>"]);
  });

  test("leaves out what moves a cursor, sets a title or rings", () => {
    expect(texts("\x1b[2K\x1b[1Ga\x1b]0;title\x07b\x07c")).toEqual(["a", "b", "c"].slice(0, 1).concat("bc"));
  });

  test("a link of a terminal is its text alone, and what turns text is left out, as a terminal does", () => {
    const link =
      "\x1b]8;;https://evil.example\x07here\x1b]8;;\x07 and \x1b]8;id=1;javascript:hit()\x1b\\there\x1b]8;;\x1b\\";
    expect(texts(link).join("")).toBe("here and there");
    expect(plain("a\u202eb\u2066c\u200fd\x9b31me")).toBe("abcd31me");
    expect(spans("a\u202eb")[0]?.text).toBe("ab");
  });

  test("a line of thousands of colours is whole, with a bounded number of runs", () => {
    const found = spans("\x1b[31ma\x1b[32mb".repeat(5_000));
    expect([found.length, found.map(({ text }) => text).join("")]).toEqual([201, "ab".repeat(5_000)]);
  });

  test("bears a sequence that is cut", () => {
    expect(plain("end\x1b[3")).toBe("end[3");
    expect(plain("\x1b]8;;http://x")).toBe("");
  });
});

describe("visible", () => {
  test("shows what follows the last carriage return", () => {
    expect(visible(" 10%\r 50%\r100%")).toBe("100%");
    expect(visible("done\r")).toBe("done");
    expect(visible(Array.from({ length: 100_000 }, (_, share) => `${share}`).join("\r"))).toBe("99999");
  });
});
