/** Sends what the service does not have of a bundle, from where an earlier upload stopped. */
import { ApiError, get, post, put } from "../api/client";
import type { BundleView } from "../api/wire";

const PIECE_BYTES = 4 << 20;
const FIRST_PAUSE_MS = 500;
const LAST_PAUSE_MS = 15_000;
/** How often it tries again where nothing more has arrived: for about a minute. */
const MOST_TRIES = 8;
/** What may pass: nothing was reached, others send the same, too many requests, a full disk. */
const PASSING = [0, 409, 429, 503];

export interface Sent {
  readonly sha256: string;
  readonly size: number;
  /** Returns bytes of the tar. */
  readonly piece: (start: number, end: number) => Promise<ArrayBuffer>;
  /** Called with the bytes that have arrived, and why it waits. */
  readonly tell: (received: number, trouble: string | null) => void;
  readonly signal: AbortSignal;
}

/** Throws ApiError if the service refuses, or for too long; what `piece` throws; and the reason of `signal`. */
export async function upload(bundle: Sent): Promise<void> {
  let tries = 0;
  let view = await find(bundle);
  for (;;) {
    const before = receivedIn(view, bundle);
    bundle.tell(before, null);
    if (view?.state === "complete") return;
    try {
      view = await send(bundle, before);
      tries = 0;
    } catch (error) {
      if (!(error instanceof ApiError) || !PASSING.includes(error.status) || ++tries > MOST_TRIES)
        throw error;
      bundle.tell(before, error.message);
      await pause(Math.min(FIRST_PAUSE_MS * 2 ** (tries - 1), LAST_PAUSE_MS), bundle.signal);
      view = await find(bundle, view);
      if (error.status === 409 && receivedIn(view, bundle) === before) throw error;
    }
  }
}

/** Forgets what has arrived of a bundle. What the service keeps all the same, it removes after a day. */
export async function forget(sha256: string): Promise<void> {
  await post(`v1/bundles/${sha256}`, undefined, "DELETE").catch(() => undefined);
}

async function send({ sha256, size, piece, signal }: Sent, offset: number): Promise<BundleView> {
  const bytes = await piece(offset, Math.min(offset + PIECE_BYTES, size));
  return put<BundleView>(`v1/bundles/${sha256}`, new Blob([bytes]), { size, offset }, signal);
}

/** Returns what the service has of the bundle; `known` where it does not answer. */
async function find({ sha256, signal }: Sent, known?: BundleView | null): Promise<BundleView | null> {
  try {
    return await get<BundleView>(`v1/bundles/${sha256}`, {}, signal);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 404) return null;
    if (known === undefined || !PASSING.includes(error.status)) throw error;
    return known;
  }
}

function receivedIn(view: BundleView | null, { size }: Sent): number {
  return view?.size === size ? view.received : 0;
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    });
  });
}
