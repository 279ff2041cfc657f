/** The two directions of a channel, as torchyard/contract/reach/channels.py has them: flow control, and going on after a cut. */
import { BadFrame, frame, LONGEST, withNumber, type Bytes, type Frame } from "./frames";

/** Bytes of one direction that are sent and not acknowledged, at most. */
export const WINDOW = 1 << 20;

const ACK_EVERY = WINDOW / 4;

/** What this side sends. It keeps what is not acknowledged, to send it again on the next connection. */
export class Outgoing {
  private readonly kept = new Uint8Array(WINDOW);
  private size = 0;
  /** Bytes of the channel, in all. */
  private acknowledged = 0;
  private sent = 0;
  private ended = false;
  private toldEnd = false;

  constructor(private readonly channel: number) {}

  /** How many bytes `put` takes now. */
  get room(): number {
    return this.ended ? 0 : WINDOW - this.size;
  }

  /** Throws RangeError for more than `room`. */
  put(content: Bytes): void {
    if (content.length > this.room) throw new RangeError(`${content.length} bytes do not fit`);
    this.kept.set(content, this.size);
    this.size += content.length;
  }

  /** Has the other side be told that no more bytes come. */
  end(): void {
    this.ended = true;
  }

  /** Returns what this connection has not carried yet. All of it must be sent. */
  frames(): Frame[] {
    const found: Frame[] = [];
    for (let start = this.sent - this.acknowledged; start < this.size; start += LONGEST) {
      const content = this.kept.slice(start, Math.min(start + LONGEST, this.size));
      this.sent += content.length;
      found.push(frame("DATA", this.channel, content));
    }
    if (this.ended && !this.toldEnd) {
      this.toldEnd = true;
      found.push(frame("EOF", this.channel));
    }
    return found;
  }

  /** Takes what an ACK says. Throws BadFrame if it names what was never sent. */
  acknowledge(total: number): void {
    if (total < this.acknowledged || total > this.sent)
      throw new BadFrame(`${total} bytes are acknowledged, of ${this.acknowledged} to ${this.sent}`);
    this.kept.copyWithin(0, total - this.acknowledged, this.size);
    this.size -= total - this.acknowledged;
    this.acknowledged = total;
  }

  /** Begins a new connection, to a side that has these bytes. Throws BadFrame if it cannot have them. */
  resume(received: number): void {
    if (received < this.acknowledged || received > this.sent)
      throw new BadFrame(`${received} bytes were received, of ${this.acknowledged} to ${this.sent}`);
    this.sent = received;
    this.toldEnd = false;
  }
}

/** What this side receives. */
export class Incoming {
  /** Bytes, in all. */
  received = 0;
  hasEnded = false;
  private passedOnSoFar = 0;
  private acknowledged = 0;

  constructor(private readonly channel: number) {}

  /** Counts the bytes of a DATA frame. Throws BadFrame for more than the sender may have on its way. */
  take(content: Bytes): void {
    this.received += content.length;
    if (this.received - this.acknowledged > WINDOW)
      throw new BadFrame(`more than ${WINDOW} bytes were sent without being acknowledged`);
    if (this.hasEnded && content.length > 0)
      throw new BadFrame("bytes were sent after the end of their channel");
  }

  end(): void {
    this.hasEnded = true;
  }

  /** Notes that `count` bytes more are where they belong. Returns the frame to send, if it is time for one. */
  passedOn(count: number): Frame | null {
    this.passedOnSoFar += count;
    const isAll = this.passedOnSoFar === this.received && this.received > this.acknowledged;
    const isLast = this.hasEnded && isAll;
    return isLast || this.passedOnSoFar - this.acknowledged >= ACK_EVERY ? this.resume() : null;
  }

  /** Returns the frame that says how many bytes were passed on. Each further connection begins with it. */
  resume(): Frame {
    this.acknowledged = this.passedOnSoFar;
    return withNumber("ACK", this.passedOnSoFar, this.channel);
  }
}
