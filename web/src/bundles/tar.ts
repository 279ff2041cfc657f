/** The tar of a bundle: torchyard/contract/bundles/tar.py writes the same bytes. */

const BLOCK = 512;
export const END_BYTES = 2 * BLOCK;
const SHORT_NAME = 100;

const encoder = new TextEncoder();

/** Returns what precedes the bytes of a file. */
export function headerOf(name: string, size: number, isExecutable: boolean): Uint8Array<ArrayBuffer> {
  const short = [...name]
    .map((char) => (char < "\x80" ? char : "?"))
    .join("")
    .slice(0, SHORT_NAME);
  const own = blockOf(short, isExecutable ? 0o755 : 0o644, size, "0");
  if (!needsRecord(name)) return own;
  const record = recordOf(name);
  const found = new Uint8Array(2 * BLOCK + record.length + paddingOf(record.length));
  found.set(blockOf("././@PaxHeader", 0o644, record.length, "x"));
  found.set(record, BLOCK);
  found.set(own, found.length - BLOCK);
  return found;
}

/** Returns the bytes of `headerOf`. */
export function headerBytes(name: string): number {
  if (!needsRecord(name)) return BLOCK;
  const { length } = recordOf(name);
  return 2 * BLOCK + length + paddingOf(length);
}

/** Returns how many zeros follow so many bytes. */
export function paddingOf(size: number): number {
  return (BLOCK - (size % BLOCK)) % BLOCK;
}

function needsRecord(name: string): boolean {
  return name.length > SHORT_NAME || /[^\0-\x7f]/.test(name);
}

/** Returns a record of PAX, which begins with its own length. */
function recordOf(name: string): Uint8Array {
  const rest = encoder.encode(` path=${name}\n`);
  const almost = rest.length + String(rest.length).length;
  const length = encoder.encode(String(rest.length + String(almost).length));
  const found = new Uint8Array(length.length + rest.length);
  found.set(length);
  found.set(rest, length.length);
  return found;
}

function blockOf(name: string, mode: number, size: number, kind: string): Uint8Array<ArrayBuffer> {
  const block = new Uint8Array(BLOCK);
  block.set(encoder.encode(name));
  const numbers = [octal(mode, 7), octal(0, 7), octal(0, 7), octal(size, 11), octal(0, 11)].join("");
  block.set(encoder.encode(`${numbers}        ${kind}`), 100);
  block.set(encoder.encode("ustar\x0000"), 257);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.set(encoder.encode(`${octal(sum, 6)} `), 148);
  return block;
}

function octal(number: number, digits: number): string {
  return `${number.toString(8).padStart(digits, "0")}\0`;
}
