/** Frames of a reach, as torchyard/contract/reach/frames.py has them: a header (kind, channel, length) and a content. */

/** Bytes of the content of a frame, at most. */
export const LONGEST = 1 << 16;

const HEADER_BYTES = 9;

export const KINDS = {
  HELLO: 0,
  DATA: 1,
  EOF: 2,
  ACK: 3,
  OPEN: 4,
  OPENED: 5,
  REFUSED: 6,
  CLOSE: 7,
  RESIZE: 8,
  SIGNAL: 9,
  EXIT: 10,
  ERROR: 11,
  WARNING: 12,
} as const;

export type Kind = keyof typeof KINDS;

const NAMES = Object.keys(KINDS) as Kind[];
const NUMBER_BYTES: Partial<Record<Kind, 1 | 4 | 8>> = { ACK: 8, EXIT: 4, SIGNAL: 1 };
const NOTHING = new Uint8Array(0);

export type Bytes = Uint8Array<ArrayBuffer>;

/** The other side has sent what is no frame, or one that does not fit here. */
export class BadFrame extends Error {}

export interface Frame {
  readonly kind: Kind;
  readonly channel: number;
  readonly content: Bytes;
}

export function frame(kind: Kind, channel = 0, content: Bytes = NOTHING): Frame {
  return { kind, channel, content };
}

/** Returns a frame whose content is a value as JSON. */
export function withJson(kind: Kind, value: unknown): Frame {
  return frame(kind, 0, new TextEncoder().encode(JSON.stringify(value)));
}

/** Returns a frame whose content is a number. */
export function withNumber(kind: "ACK" | "EXIT" | "SIGNAL", number: number, channel = 0): Frame {
  const content = new Uint8Array(NUMBER_BYTES[kind] ?? 0);
  const view = new DataView(content.buffer);
  if (kind === "ACK") view.setBigInt64(0, BigInt(number));
  else if (kind === "EXIT") view.setInt32(0, number);
  else view.setInt8(0, number);
  return frame(kind, channel, content);
}

/** Returns the number in the content. Throws BadFrame if it is none. */
export function numberOf({ kind, content }: Frame): number {
  const view = new DataView(content.buffer, content.byteOffset, content.byteLength);
  if (NUMBER_BYTES[kind] !== content.length) throw new BadFrame(`${kind} has no number`);
  if (kind === "ACK") return Number(view.getBigInt64(0));
  return kind === "EXIT" ? view.getInt32(0) : view.getInt8(0);
}

export function encode({ kind, channel, content }: Frame): Bytes {
  const encoded = new Uint8Array(HEADER_BYTES + content.length);
  const view = new DataView(encoded.buffer);
  view.setUint8(0, KINDS[kind]);
  view.setUint32(1, channel);
  view.setUint32(5, content.length);
  encoded.set(content, HEADER_BYTES);
  return encoded;
}

/** Cuts a stream of bytes into frames. It holds at most one that is not whole. */
export class FrameReader {
  private rest: Bytes = NOTHING;

  /** Returns the frames that are whole. Throws BadFrame: then the stream is of no use. */
  feed(received: Bytes): Frame[] {
    const all = this.rest.length === 0 ? received : joined([this.rest, received]);
    const view = new DataView(all.buffer, all.byteOffset, all.byteLength);
    const frames: Frame[] = [];
    let start = 0;
    while (all.length - start >= HEADER_BYTES) {
      const number = view.getUint8(start);
      const length = view.getUint32(start + 5);
      if (length > LONGEST) throw new BadFrame(`a frame has ${length} bytes, of at most ${LONGEST}`);
      const end = start + HEADER_BYTES + length;
      if (end > all.length) break;
      const kind = NAMES[number];
      if (kind === undefined) throw new BadFrame(`there is no frame of kind ${number}`);
      frames.push(frame(kind, view.getUint32(start + 1), all.slice(start + HEADER_BYTES, end)));
      start = end;
    }
    this.rest = all.slice(start);
    return frames;
  }
}

export function joined(parts: readonly Bytes[]): Bytes {
  const all = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let start = 0;
  for (const part of parts) {
    all.set(part, start);
    start += part.length;
  }
  return all;
}
