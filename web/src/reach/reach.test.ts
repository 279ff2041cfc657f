/** A terminal's end of a reach, against the other end, which says what a job's side says. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { eventually } from "../testing";
import { WINDOW } from "./channels";
import { encode, frame, FrameReader, numberOf, withJson, withNumber, type Bytes, type Frame } from "./frames";
import { Ended, Reach, type Stage } from "./reach";

const SECRET = "07".repeat(32);
const SIZE = { rows: 24, columns: 80 };
const text = new TextEncoder();
const read = (content: Bytes): string => new TextDecoder().decode(content);

/** Replaces the browser's WebSocket; the test plays the service. */
class Socket {
  binaryType = "blob";
  readyState = 1;
  onmessage: ((event: MessageEvent) => void) | null = null;
  onclose: ((event: { code: number; reason: string }) => void) | null = null;
  readonly said: string[] = [];
  readonly frames: Frame[] = [];
  private readonly reader = new FrameReader();

  constructor(readonly meeting: number) {}

  send(data: string | Bytes): void {
    if (typeof data === "string") this.said.push(data);
    else this.frames.push(...this.reader.feed(data));
  }

  /** The other side says something. */
  async says(...all: readonly (Frame | object)[]): Promise<void> {
    for (const each of all) {
      const data = "kind" in each ? encode(each).slice().buffer : JSON.stringify(each);
      this.onmessage?.(new MessageEvent("message", { data }));
    }
    await eventually(() => settle());
  }

  async cut(code = 1006, reason = ""): Promise<void> {
    this.readyState = 3;
    this.onclose?.({ code, reason });
    await settle();
  }

  close(): void {
    this.readyState = 3;
  }

  kinds(): string[] {
    return this.frames.map(({ kind }) => kind);
  }
}

async function settle(): Promise<void> {
  for (let i = 0; i < 20; i++) await new Promise((done) => setImmediate(done));
}

let sockets: Socket[];
let stages: Stage[];
let shown: string;
let warned: string[];
let refusal: Error | null;
/** What is shown, and not yet done. */
let showing: (() => void)[];

beforeEach(() => {
  vi.stubGlobal("WebSocket", { OPEN: 1 });
  [sockets, stages, shown, warned, refusal, showing] = [[], [], "", [], null, []];
});

afterEach(() => void vi.unstubAllGlobals());

function reach(): Reach {
  let meeting = 0;
  return new Reach(
    {
      meet: () => {
        if (refusal) return Promise.reject(refusal);
        return Promise.resolve({ id: "rch_1", meeting: ++meeting, secret: SECRET });
      },
      connect: (number) => {
        const socket = new Socket(number);
        sockets.push(socket);
        return socket as unknown as WebSocket;
      },
      show: (content, done) => {
        shown += read(content);
        showing.push(done);
      },
      tell: (stage) => stages.push(stage),
      warn: (line) => warned.push(line),
    },
    SIZE,
  );
}

async function hmac(side: string, nonces: readonly [string, string], meeting: number): Promise<string> {
  const { createHmac } = await import("node:crypto");
  const proof = createHmac("sha256", Buffer.from(SECRET, "hex"));
  for (const part of [side, "rch_1", String(meeting), ...nonces]) {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(part.length);
    proof.update(length).update(part);
  }
  return proof.update("torchyard-reach-1").digest("hex");
}

/** Answers as the service does until both sides may speak, and returns the newest socket. */
async function met(received: Record<string, number> = {}): Promise<Socket> {
  await eventually(() => expect(sockets.at(-1)?.onmessage).toBeTruthy());
  const socket = sockets.at(-1) as Socket;
  const nonce = "ab".repeat(32);
  await socket.says({ nonce });
  await eventually(() => expect(socket.said.length).toBe(1));
  const own = JSON.parse(socket.said[0] ?? "") as { nonce: string; proof: string };
  expect(own.proof).toBe(await hmac("client", [nonce, own.nonce], socket.meeting));
  await socket.says({ proof: await hmac("service", [nonce, own.nonce], socket.meeting) });
  await eventually(() => expect(socket.kinds()[0]).toBe("HELLO"));
  await socket.says(withJson("HELLO", { received }));
  return socket;
}

test("what is typed is sent once both have met, what comes is shown, and the exit code is told", async () => {
  const opened = reach();
  const run = opened.run();
  opened.write(text.encode("ls\r"));
  const socket = await met();
  await eventually(() => expect(socket.kinds()).toEqual(["HELLO", "DATA"]));
  expect(read(socket.frames[1]?.content ?? new Uint8Array())).toBe("ls\r");
  await socket.says(frame("DATA", 0, text.encode("a.py\r\n")), frame("WARNING", 0, text.encode("soon")));
  expect([shown, warned]).toEqual(["a.py\r\n", ["soon"]]);
  opened.resize({ rows: 5, columns: 6 });
  await socket.says(withNumber("EXIT", 3));
  await run;
  expect(stages.at(-1)).toEqual({ kind: "ended", text: "The shell has ended with exit code 3." });
  expect(socket.kinds().slice(2)).toEqual(["RESIZE", "CLOSE"]);
});

test("after a cut both sides go on where the other one is", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout"] });
  const opened = reach();
  void opened.run();
  const first = await met();
  opened.write(text.encode("abcdef"));
  await first.says(frame("DATA", 0, text.encode("12345")));
  showing.pop()?.();
  await first.cut();
  expect(stages.at(-1)?.kind).toBe("cut");
  await vi.advanceTimersByTimeAsync(200);
  vi.useRealTimers();
  const second = await met({ "0": 4 });
  expect(second.meeting).toBe(2);
  expect(JSON.parse(read(second.frames[0]?.content ?? new Uint8Array()))).toEqual({ received: { "0": 5 } });
  await eventually(() => expect(second.kinds()).toEqual(["HELLO", "ACK", "RESIZE", "DATA"]));
  expect(numberOf(second.frames[1] as Frame)).toBe(5);
  expect(read((second.frames[3] as Frame).content)).toBe("ef");
  opened.close();
  expect(second.kinds().at(-1)).toBe("CLOSE");
});

test("a paste of 5 MB waits for room, and comes whole", async () => {
  const opened = reach();
  void opened.run();
  const socket = await met();
  opened.write(new Uint8Array(5_000_000).fill(120));
  let got = 0;
  for (;;) {
    const data = socket.frames.splice(0).filter(({ kind }) => kind === "DATA");
    if (data.length === 0) break;
    const size = data.reduce((sum, { content }) => sum + content.length, 0);
    expect(size).toBeLessThanOrEqual(WINDOW);
    got += size;
    await socket.says(withNumber("ACK", got));
  }
  expect(got).toBe(5_000_000);
  opened.close();
});

test("a refusal ends it with its reason, and nothing is tried again", async () => {
  for (const [code, reason] of [
    [4410, "it was ended, or is not permitted any more"],
    [4403, "there is no such meeting"],
  ] as const) {
    const run = reach().run();
    await (await met()).cut(code, reason);
    await run;
    expect(stages.at(-1)).toEqual({ kind: "ended", text: expect.stringMatching(/^(It was|There is) .*\.$/) });
  }
  refusal = new Ended("The job has ended.");
  await reach().run();
  expect(stages.at(-1)).toEqual({ kind: "ended", text: "The job has ended." });
  expect(sockets.length).toBe(2);
});

test("an error of the job's side ends it, also before its hello", async () => {
  const run = reach().run();
  await eventually(() => expect(sockets.at(-1)?.onmessage).toBeTruthy());
  const socket = sockets[0] as Socket;
  await socket.says(frame("ERROR", 0, text.encode("the job has no door")));
  await run;
  expect(stages.at(-1)).toEqual({ kind: "ended", text: "The job has no door." });
});

test("what does not know the secret is not spoken to", async () => {
  const run = reach().run();
  await eventually(() => expect(sockets.at(-1)?.onmessage).toBeTruthy());
  const socket = sockets[0] as Socket;
  await socket.says({ nonce: "ab".repeat(32) }, { proof: "cd".repeat(32) });
  await run;
  expect(stages.at(-1)).toEqual({ kind: "ended", text: "This address does not lead to the service." });
  expect(socket.frames).toEqual([]);
});
