/** Reads the colours of terminal output (ECMA-48, 8.3.117). Everything else of a line is text, and is shown as such. */

/** A run of characters of one look. `color` is a class of the 16 colours, or a CSS colour. */
export interface Span {
  readonly text: string;
  readonly color: string | null;
  readonly background: string | null;
  readonly bold: boolean;
  readonly dim: boolean;
  readonly italic: boolean;
  readonly underline: boolean;
}

type Look = Omit<Span, "text">;

const PLAIN: Look = {
  color: null,
  background: null,
  bold: false,
  dim: false,
  italic: false,
  underline: false,
};
// Control sequences (CSI … final byte), operating system commands (OSC … BEL or ST), and two-character escapes.
const ESCAPE = /\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])/g;
// No terminal shows them: controls, and what turns the text beside it.
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
/** So many runs of a line are coloured: each is an element, and a line may have thousands. */
const MOST_SPANS = 200;
const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"] as const;

/** Returns what a terminal would show of the line: after a carriage return, the text begins anew over the old one. */
export function visible(line: string): string {
  const trimmed = line.endsWith("\r") ? line.slice(0, -1) : line;
  return trimmed.slice(trimmed.lastIndexOf("\r") + 1);
}

/** Returns the line's spans. The look does not pass from one line to the next: lines of several ranks interleave. */
export function spans(line: string): Span[] {
  const text = visible(line);
  const found: Span[] = [];
  let look = PLAIN;
  let from = 0;
  for (const match of text.matchAll(ESCAPE)) {
    add(found, text.slice(from, match.index), look);
    from = match.index + match[0].length;
    if (found.length === MOST_SPANS) break;
    if (match[2] === "m") look = changed(look, match[1] ?? "");
  }
  add(found, text.slice(from).replace(ESCAPE, ""), look);
  return found;
}

/** Returns the line without escape sequences, as search and copies see it. */
export function plain(line: string): string {
  return visible(line).replace(ESCAPE, "").replace(CONTROL, "");
}

function add(found: Span[], text: string, look: Look): void {
  const clean = text.replace(CONTROL, "");
  if (clean) found.push({ text: clean, ...look });
}

function changed(look: Look, parameters: string): Look {
  const codes = parameters.split(/[;:]/).map((code) => Number(code || "0"));
  let next = look;
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at] ?? 0;
    if (code === 38 || code === 48) {
      const { color, used } = extended(codes.slice(at + 1));
      next = { ...next, [code === 38 ? "color" : "background"]: color };
      at += used;
    } else next = simple(next, code);
  }
  return next;
}

function simple(look: Look, code: number): Look {
  if (code === 0) return PLAIN;
  if (code === 1) return { ...look, bold: true };
  if (code === 2) return { ...look, dim: true };
  if (code === 3) return { ...look, italic: true };
  if (code === 4) return { ...look, underline: true };
  if (code === 22) return { ...look, bold: false, dim: false };
  if (code === 23) return { ...look, italic: false };
  if (code === 24) return { ...look, underline: false };
  if (code === 39) return { ...look, color: null };
  if (code === 49) return { ...look, background: null };
  if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) return { ...look, color: name(code % 10) };
  if ((code >= 40 && code <= 47) || (code >= 100 && code <= 107))
    return { ...look, background: name(code % 10) };
  return look;
}

/** Reads `5;N` (256 colours) or `2;R;G;B`, and tells how many codes it has used. */
function extended(codes: readonly number[]): { color: string | null; used: number } {
  if (codes[0] === 5) return { color: indexed(codes[1] ?? 0), used: 2 };
  if (codes[0] === 2) return { color: rgb(codes[1] ?? 0, codes[2] ?? 0, codes[3] ?? 0), used: 4 };
  return { color: null, used: 0 };
}

function indexed(index: number): string {
  if (index < 16) return name(index % 8);
  if (index >= 232) return rgb(8 + (index - 232) * 10, 8 + (index - 232) * 10, 8 + (index - 232) * 10);
  const cube = index - 16;
  const level = (value: number): number => (value === 0 ? 0 : 55 + value * 40);
  return rgb(level(Math.floor(cube / 36) % 6), level(Math.floor(cube / 6) % 6), level(cube % 6));
}

function rgb(red: number, green: number, blue: number): string {
  const clamp = (value: number): number => Math.min(255, Math.max(0, Math.trunc(value) || 0));
  return `rgb(${clamp(red)} ${clamp(green)} ${clamp(blue)})`;
}

function name(index: number): string {
  return NAMES[index] ?? "white";
}
