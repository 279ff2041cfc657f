/** Reads server-sent events (HTML Living Standard, 9.2) from a body: EventSource tells neither status nor reason. */

export interface ServerEvent {
  readonly name: string;
  readonly id: string | null;
  readonly data: string;
}

/** Returns a function that takes the next piece of text and answers the events that it completes. */
export function parser(): (text: string) => ServerEvent[] {
  let rest = "";
  let name = "";
  let id: string | null = null;
  let data: string[] = [];
  let isFirst = true;

  return (text) => {
    const events: ServerEvent[] = [];
    rest += isFirst ? text.replace(/^\uFEFF/, "") : text;
    if (text !== "") isFirst = false;
    for (;;) {
      const end = rest.search(/[\r\n]/);
      // A CR that comes last may be the first half of a CRLF.
      if (end < 0 || (rest[end] === "\r" && end === rest.length - 1)) return events;
      const line = rest.slice(0, end);
      rest = rest.slice(rest.startsWith("\r\n", end) ? end + 2 : end + 1);
      if (line === "") {
        if (data.length > 0) events.push({ name: name || "message", id, data: data.join("\n") });
        name = "";
        data = [];
        continue;
      }
      const [field, value] = fieldOf(line);
      if (field === "event") name = value;
      else if (field === "data") data.push(value);
      else if (field === "id" && !value.includes("\0")) id = value;
    }
  };
}

/** Calls `take` with each event of the body, and `heard` with every piece of it, comments too. Ends with the body. */
export async function readEvents(
  body: ReadableStream<Uint8Array>,
  take: (event: ServerEvent) => void,
  heard: () => void = () => undefined,
): Promise<void> {
  const parse = parser();
  const decoder = new TextDecoder();
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      for (const event of parse(decoder.decode(value, { stream: true }))) take(event);
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

function fieldOf(line: string): [string, string] {
  const colon = line.indexOf(":");
  if (colon < 0) return [line, ""];
  return [line.slice(0, colon), line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1)];
}
