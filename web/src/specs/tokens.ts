/** The parts of a line of YAML as `text/yaml` writes it, for colours. */

export interface Token {
  readonly text: string;
  readonly kind: "key" | "text" | "number" | "word" | "mark";
}

const KEY = /^(\s*(?:- )*)("(?:[^"\\]|\\.)*"|[^\s:[{"][^:]*)(?=:(?: |$))/;
const PARTS = /"(?:[^"\\]|\\.)*"|[[\]{},:]|[^[\]{},:"]+|"/g;
const NUMBER = /^[-+]?(\d[\d_]*(\.\d*)?(e[-+]?\d+)?|\.inf|\.nan)$/i;
const WORD = /^(true|false|null)$/;

export function tokensOf(line: string): readonly Token[] {
  const [whole = "", indent = "", key = ""] = KEY.exec(line) ?? [];
  const found: Token[] = key === "" ? [] : [mark(indent), { text: key, kind: "key" }];
  for (const [text] of line.slice(whole.length).matchAll(PARTS)) found.push({ text, kind: kindOf(text) });
  return found;
}

function kindOf(text: string): Token["kind"] {
  const plain = text.trim();
  if (plain === "" || /^[[\]{},:-]$/.test(plain)) return "mark";
  if (NUMBER.test(plain)) return "number";
  return WORD.test(plain) ? "word" : "text";
}

function mark(text: string): Token {
  return { text, kind: "mark" };
}
