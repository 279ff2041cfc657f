/** The parts of a line of YAML as `text/yaml` writes it, for colours. */

export interface Token {
  readonly text: string;
  readonly kind: "key" | "text" | "number" | "word" | "mark";
}

const INDENT = /^ *(?:- )*/;
const KEY = /^(?:"(?:[^"\\]|\\.)*"|[^\s:{"[-][^:]*)(?=:(?: |$))/;
const PARTS = /"(?:[^"\\]|\\.)*"?|[\]{},:[]|[^\]{},:"[]+/g;
const NUMBER = /^[-+]?(\d[\d_]*(\.\d*)?(e[-+]?\d+)?|\.inf|\.nan)$/i;
const WORD = /^(true|false|null)$/;

export function tokensOf(line: string): readonly Token[] {
  const [indent = ""] = INDENT.exec(line) ?? [];
  const rest = line.slice(indent.length);
  const [key = ""] = KEY.exec(rest) ?? [];
  const found: Token[] = indent === "" ? [] : [{ text: indent, kind: "mark" }];
  if (key !== "") found.push({ text: key, kind: "key" });
  for (const [text] of rest.slice(key.length).matchAll(PARTS)) found.push({ text, kind: kindOf(text) });
  return found;
}

function kindOf(text: string): Token["kind"] {
  const plain = text.trim();
  if (plain === "" || /^[\]{},:[-]$/.test(plain)) return "mark";
  if (NUMBER.test(plain)) return "number";
  return WORD.test(plain) ? "word" : "text";
}
