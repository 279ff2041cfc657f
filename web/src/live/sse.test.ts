import { expect, test } from "vitest";
import { parser, readEvents, type ServerEvent } from "./sse";

const TEXT = ': hello\n\nid: a:1\nevent: items\ndata: {"x":\ndata: 1}\n\nevent: ready\ndata:\n\ndata: ä\n\n';
const EVENTS: ServerEvent[] = [
  { id: "a:1", name: "items", data: '{"x":\n1}' },
  { id: "a:1", name: "ready", data: "" },
  { id: "a:1", name: "message", data: "ä" },
];

test("events are the same however the text is cut", () => {
  for (let size = 1; size <= TEXT.length; size += 1) {
    const parse = parser();
    const found: ServerEvent[] = [];
    for (let at = 0; at < TEXT.length; at += size) found.push(...parse(TEXT.slice(at, at + size)));
    expect(found).toEqual(EVENTS);
  }
});

test("lines end with CR, LF or both", () => {
  const parse = parser();
  const text = TEXT.replaceAll("\n", "\r\n");
  expect([...text].flatMap((character) => parse(character))).toEqual(EVENTS);
  expect(parser()(`${TEXT.replaceAll("\n", "\r")}: the last CR could be half of an end\n`)).toEqual(EVENTS);
});

test("an event that is cut off is left out", () => {
  expect(parser()("data: 1\n\ndata: 2\n")).toEqual([{ id: null, name: "message", data: "1" }]);
});

test("an event without data only sets the id", () => {
  expect(parser()("id: 7\n\ndata: 1\n\n")).toEqual([{ id: "7", name: "message", data: "1" }]);
});

test("characters that are cut within their bytes arrive whole, and comments are heard", async () => {
  const bytes = new TextEncoder().encode(TEXT);
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const byte of bytes) controller.enqueue(new Uint8Array([byte]));
      controller.close();
    },
  });
  const found: ServerEvent[] = [];
  let heard = 0;
  await readEvents(
    body,
    (event) => found.push(event),
    () => (heard += 1),
  );
  expect(found).toEqual(EVENTS);
  expect(heard).toBe(bytes.length);
});
