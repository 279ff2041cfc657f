/** A terminal in a running job: one reach, over one connection after the other. */
import { Incoming, Outgoing } from "./channels";
import { BadFrame, encode, frame, FrameReader, numberOf, withJson, type Bytes, type Frame } from "./frames";
import { newNonce, prove, proves } from "./proof";

/** Where the two ends meet: the answer of the service. */
export interface Meeting {
  readonly id: string;
  readonly meeting: number;
  readonly secret: string;
}

export interface Size {
  readonly rows: number;
  readonly columns: number;
}

/** How it stands. `cut`: it is tried to come again. */
export type Stage =
  | { readonly kind: "connecting" | "connected" | "cut" }
  | { readonly kind: "ended"; readonly text: string };

export interface Uses {
  /** Asks for a meeting: of a new shell, or of the same again. Throws Ended if there can be none. */
  readonly meet: (isNew: boolean, size: Size) => Promise<Meeting>;
  readonly connect: (meeting: number) => WebSocket;
  /** Shows what the program writes, and calls `shown` once that is done. */
  readonly show: (content: Bytes, shown: () => void) => void;
  readonly tell: (stage: Stage) => void;
  /** A line for the user. */
  readonly warn: (text: string) => void;
}

/** To come again would change nothing. */
export class Ended extends Error {}

const CHANNEL = 0;
const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5_000;
const NORMAL = 1000;
/** Codes with which the service refuses for good: a wrong request, a wrong proof, and what was ended. */
const REFUSED = new Set([4400, 4403, 4410]);

export class Reach {
  private readonly outgoing = new Outgoing(CHANNEL);
  private readonly incoming = new Incoming(CHANNEL);
  /** Bytes for which the window has no room yet. */
  private waiting: Bytes[] = [];
  private socket: WebSocket | null = null;
  /** Whether the other side has said hello on this connection, and ever. */
  private isMet = false;
  private wasMet = false;
  private isOver = false;
  private wake: () => void = () => undefined;

  constructor(
    private readonly uses: Uses,
    private size: Size,
  ) {}

  /** Connects, and again after each cut, until the shell has ended. */
  async run(): Promise<void> {
    let pause = FIRST_PAUSE_MS;
    this.uses.tell({ kind: "connecting" });
    for (let isNew = true; !this.isOver;) {
      try {
        const meeting = await this.uses.meet(isNew, this.size);
        isNew = false;
        if (await this.over(meeting)) pause = FIRST_PAUSE_MS;
      } catch (error) {
        if (error instanceof Ended || error instanceof BadFrame) this.finish(error.message);
      }
      if (this.isOver) return;
      this.uses.tell({ kind: this.wasMet ? "cut" : "connecting" });
      await new Promise<void>((done) => {
        this.wake = done;
        setTimeout(done, pause);
      });
      pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
    }
  }

  /** Sends what was typed. */
  write(content: Bytes): void {
    this.waiting.push(content);
    this.flush();
  }

  resize(size: Size): void {
    this.size = size;
    if (this.isMet) this.send(withJson("RESIZE", size));
  }

  /** Ends the shell. */
  close(): void {
    this.isOver = true;
    if (this.isMet) this.send(frame("CLOSE", CHANNEL));
    this.socket?.close(NORMAL);
    this.wake();
  }

  /** Tries again at once: the network may be there again. A connection that is only thought to be there is given up. */
  hurry(): void {
    this.socket?.close();
    this.wake();
  }

  /** Carries frames over one connection, until it is cut. Returns whether the other side was there. Throws Ended. */
  private async over(meeting: Meeting): Promise<boolean> {
    this.isMet = false;
    const socket = (this.socket = this.uses.connect(meeting.meeting));
    socket.binaryType = "arraybuffer";
    const reader = new FrameReader();
    let handshake: Handshake | null = new Handshake(meeting);
    try {
      await new Promise<void>((done, failed) => {
        // One message after the other: a proof takes a moment, and what follows it must not come first.
        let before = Promise.resolve();
        socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
          before = before.then(async () => {
            if (typeof data !== "string") this.takeAll(reader.feed(new Uint8Array(data)));
            else if (handshake !== null) {
              const answer = await handshake.answer(data);
              if (answer !== null) socket.send(answer);
              else {
                handshake = null;
                this.send(this.hello());
              }
            }
            if (this.isOver) done();
          });
          before.catch(failed);
        };
        socket.onclose = ({ code, reason }) => {
          const isEnd = REFUSED.has(code) || (code === NORMAL && this.isMet);
          void before.then(
            () => (isEnd && !this.isOver ? failed(new Ended(sentence(reason))) : done()),
            failed,
          );
        };
      });
    } finally {
      socket.onmessage = socket.onclose = null;
      socket.close(NORMAL);
      this.socket = null;
    }
    const wasMet = this.isMet;
    this.isMet = false;
    return wasMet;
  }

  private hello(): Frame {
    return withJson("HELLO", { received: this.wasMet ? { [CHANNEL]: this.incoming.received } : {} });
  }

  private takeAll(frames: readonly Frame[]): void {
    for (const each of frames) {
      if (this.isOver) return;
      if (each.kind === "ERROR") throw new Ended(sentence(textOf(each)));
      if (this.isMet) this.take(each);
      else this.begin(each);
    }
  }

  /** Goes on from what the other side has. */
  private begin(hello: Frame): void {
    if (hello.kind !== "HELLO") throw new BadFrame(`it begins with ${hello.kind}`);
    const { received = {} } = JSON.parse(textOf(hello)) as { received?: Record<string, number> };
    this.isMet = true;
    if (this.wasMet) {
      this.outgoing.resume(received[CHANNEL] ?? 0);
      this.send(this.incoming.resume());
      this.send(withJson("RESIZE", this.size));
    }
    this.wasMet = true;
    this.uses.tell({ kind: "connected" });
    this.flush();
  }

  private take(each: Frame): void {
    if (each.kind === "EXIT") {
      this.send(frame("CLOSE", CHANNEL)); // it need not be told again
      this.finish(endOf(numberOf(each)));
    } else if (each.kind === "WARNING") this.uses.warn(textOf(each));
    else if (each.channel !== CHANNEL) return;
    else if (each.kind === "DATA") {
      this.incoming.take(each.content);
      this.uses.show(each.content, () => this.acknowledge(each.content.length));
    } else if (each.kind === "EOF") {
      this.incoming.end();
      this.acknowledge(0);
    } else if (each.kind === "ACK") {
      this.outgoing.acknowledge(numberOf(each));
      this.flush();
    } else if (each.kind === "CLOSE") this.finish("The shell has ended.");
  }

  private acknowledge(count: number): void {
    const answer = this.incoming.passedOn(count);
    if (answer !== null && this.isMet) this.send(answer);
  }

  /** Sends what there is room for. */
  private flush(): void {
    while (this.waiting[0] !== undefined && this.outgoing.room > 0) {
      const [next, room] = [this.waiting[0], this.outgoing.room];
      this.outgoing.put(next.slice(0, room));
      if (next.length > room) this.waiting[0] = next.slice(room);
      else this.waiting.shift();
    }
    if (this.isMet) for (const each of this.outgoing.frames()) this.send(each);
  }

  private send(each: Frame): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(encode(each));
  }

  private finish(text: string): void {
    this.isOver = true;
    this.uses.tell({ kind: "ended", text });
  }
}

/** What both sides say before the first frame. */
class Handshake {
  private nonces: { serviceNonce: string; endNonce: string } | null = null;

  constructor(private readonly meeting: Meeting) {}

  /** Returns what to send; null once the service has proved itself. Throws Ended if it has not. */
  async answer(said: string): Promise<string | null> {
    const { nonce, proof } = JSON.parse(said) as { nonce?: string; proof?: string };
    const { id: reach, meeting, secret } = this.meeting;
    if (this.nonces === null) {
      this.nonces = { serviceNonce: nonce ?? "", endNonce: newNonce() };
      const own = await prove({ secret, reach, meeting, ...this.nonces });
      return JSON.stringify({ nonce: this.nonces.endNonce, proof: own });
    }
    if (await proves(proof ?? "", { secret, reach, meeting, ...this.nonces })) return null;
    throw new Ended("This address does not lead to the service.");
  }
}

function endOf(code: number): string {
  if (code === 0) return "The shell has ended.";
  return code > 0 ? `The shell has ended with exit code ${code}.` : `Signal ${-code} killed the shell.`;
}

function textOf({ content }: Frame): string {
  return new TextDecoder().decode(content);
}

/** Returns words of the service as a sentence of the page. */
export function sentence(words: string): string {
  const text = words.trim() || "it has ended";
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}
