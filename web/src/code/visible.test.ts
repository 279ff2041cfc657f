import { expect, test } from "vitest";
import { visible } from "./visible";

test("what turns or hides text is named, and what writes words or pictures is not", () => {
  expect(visible("a\u202eb\u2066c\u200bd\u00ade\ufefff\x1bg\u{e0041}")).toBe(
    "a⟨U+202E⟩b⟨U+2066⟩c⟨U+200B⟩d⟨U+00AD⟩e⟨U+FEFF⟩f⟨U+001B⟩g⟨U+E0041⟩",
  );
  for (const text of ["a\tb\r\nc", "می\u200cخواهم", "👩🏽\u200d🔬", "❤\ufe0f\u200d🔥", "क्\u200dष", "日本語 é"])
    expect(visible(text)).toBe(text);
  expect(visible("pay\u200dpal")).toBe("pay⟨U+200D⟩pal");
});
