/** Reads the files of pictures, a few at a time: the service's other answers do not wait behind them, and few are decoded at once. */
import { ApiError, getFile } from "../api/client";
import { bytes } from "../text/bytes";

const AT_ONCE = 4;
/** The tab holds the whole picture. */
const MOST_BYTES = 32 * 1024 * 1024;
/** More than so many pixels are decoded only for who asks: 64 million take 256 MB. */
export const MOST_PIXELS = 16_000_000;

let running = 0;
const waiting: (() => void)[] = [];

/** Returns what is made of the file. Throws ApiError, the signal's reason, or what `made` does. */
export async function readPicture<T>(
  path: string,
  size: number,
  signal: AbortSignal,
  made: (file: Blob) => T | Promise<T>,
): Promise<T> {
  if (size > MOST_BYTES)
    throw new ApiError(0, "too_large", `It has ${bytes(size)}; that is too large to show.`);
  if (running >= AT_ONCE) await new Promise<void>((turn) => waiting.push(turn));
  running += 1;
  try {
    signal.throwIfAborted();
    return await made(await getFile(path, signal));
  } finally {
    running -= 1;
    waiting.shift()?.();
  }
}
