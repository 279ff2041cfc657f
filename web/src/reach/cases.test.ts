/** The cases of reaches that the page and the programs have in common: tests/torchyard/contract/reach reads them, too. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { Incoming, Outgoing } from "./channels";
import {
  BadFrame,
  encode,
  frame,
  FrameReader,
  numberOf,
  withNumber,
  type Bytes,
  type Frame,
  type Kind,
} from "./frames";
import { newNonce, prove, proves } from "./proof";

type Step = readonly [what: string, ...rest: unknown[]];

interface FrameCase {
  readonly kind: Kind;
  readonly channel: number;
  readonly content?: string;
  readonly number?: number;
  readonly encoded: string;
}

const CASES = JSON.parse(
  readFileSync(join(import.meta.dirname, "../../../tests/reach_cases.json"), "utf8"),
) as {
  readonly frames: readonly FrameCase[];
  readonly bad_frames: readonly string[];
  readonly bad_numbers: readonly (readonly [Kind, string])[];
  readonly outgoing: Readonly<Record<string, readonly Step[]>>;
  readonly incoming: Readonly<Record<string, readonly Step[]>>;
  readonly proof: Readonly<
    Record<"secret" | "reach" | "service_nonce" | "end_nonce" | "client" | "service", string>
  > & {
    readonly meeting: number;
  };
};

const hex = (digits: string): Bytes => Uint8Array.from(Buffer.from(digits, "hex"));

/** Returns bytes of a stream from which it can be told where they stand in it. */
const pattern = (start: number, length: number): Bytes =>
  Uint8Array.from({ length }, (_, number) => (start + number) % 251);

function frameOf({ kind, channel, content = "", number }: FrameCase): Frame {
  if (number === undefined) return frame(kind, channel, hex(content));
  return withNumber(kind as "ACK" | "EXIT" | "SIGNAL", number, channel);
}

/** Returns a frame that is compared fast, however large. */
const shown = ({ kind, channel, content }: Frame): unknown => [
  kind,
  channel,
  Buffer.from(content).toString("base64"),
];

test("frames are encoded as the programs encode them", () => {
  for (const one of CASES.frames) {
    expect(Buffer.from(encode(frameOf(one))).toString("hex")).toBe(one.encoded);
    const [read] = new FrameReader().feed(hex(one.encoded));
    expect(read).toEqual(frameOf(one));
    if (read && one.number !== undefined) expect(numberOf(read)).toBe(one.number);
  }
});

test("a stream is cut into frames wherever its parts begin", () => {
  const all = hex(CASES.frames.map(({ encoded }) => encoded).join(""));
  const expected = CASES.frames.map(frameOf);
  for (const size of [1, 2, 9, 10, all.length]) {
    const reader = new FrameReader();
    const found: Frame[] = [];
    for (let start = 0; start < all.length; start += size)
      found.push(...reader.feed(all.slice(start, start + size)));
    expect(found).toEqual(expected);
  }
});

test("what is no frame, and no number, is refused", () => {
  for (const encoded of CASES.bad_frames)
    expect(() => new FrameReader().feed(hex(encoded))).toThrow(BadFrame);
  for (const [kind, content] of CASES.bad_numbers)
    expect(() => numberOf(frame(kind, 0, hex(content)))).toThrow(BadFrame);
});

test.each(Object.keys(CASES.outgoing))("bytes are sent as the programs send them: %s", (name) => {
  const outgoing = new Outgoing(3);
  let put = 0;
  for (const [what, value] of CASES.outgoing[name] ?? []) {
    const count = value as number;
    if (what === "put") {
      outgoing.put(pattern(put, count));
      put += count;
    } else if (what === "refused put") expect(() => outgoing.put(new Uint8Array(count))).toThrow(RangeError);
    else if (what === "room") expect(outgoing.room).toBe(count);
    else if (what === "end") outgoing.end();
    else if (what === "acknowledge") outgoing.acknowledge(count);
    else if (what === "resume") outgoing.resume(count);
    else if (what === "refused acknowledge") expect(() => outgoing.acknowledge(count)).toThrow(BadFrame);
    else if (what === "refused resume") expect(() => outgoing.resume(count)).toThrow(BadFrame);
    else
      expect(outgoing.frames().map(shown)).toEqual(
        (value as [Kind, number, number][]).map(([kind, start, length]) =>
          shown(frame(kind, 3, pattern(start, length))),
        ),
      );
  }
});

test.each(Object.keys(CASES.incoming))("bytes are taken as the programs take them: %s", (name) => {
  const incoming = new Incoming(3);
  for (const [what, value, expected] of CASES.incoming[name] ?? []) {
    const count = value as number;
    if (what === "end") incoming.end();
    else if (what === "take") incoming.take(new Uint8Array(count));
    else if (what === "refused take") expect(() => incoming.take(new Uint8Array(count))).toThrow(BadFrame);
    else if (what === "resume") expect(incoming.resume()).toEqual(withNumber("ACK", count, 3));
    else {
      const answer = incoming.passedOn(count);
      expect(answer && numberOf(answer)).toBe(expected);
    }
  }
});

test("a proof is the one that the programs make, and that of the service is told from others", async () => {
  const { secret, reach, meeting, service_nonce, end_nonce, client, service } = CASES.proof;
  const of = { secret, reach, meeting, serviceNonce: service_nonce, endNonce: end_nonce };
  expect(await prove(of)).toBe(client);
  expect(await proves(service, of)).toBe(true);
  for (const wrong of [client, "", service.slice(2), service.toUpperCase()])
    expect(await proves(wrong, of)).toBe(false);
  expect(await proves(service, { ...of, meeting: meeting + 1 })).toBe(false);
  expect(newNonce()).toMatch(/^[0-9a-f]{64}$/);
});
