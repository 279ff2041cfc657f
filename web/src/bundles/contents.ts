/** The bytes of a bundle's tar, which are read out of the folder's files when they are wanted. */
import { sha256 } from "@noble/hashes/sha2.js";
import { Refused } from "./refused";
import { END_BYTES, headerBytes, headerOf, paddingOf } from "./tar";

export interface PackedFile {
  readonly name: string;
  readonly file: Blob;
}

const CHUNK = 1 << 20;

export class Contents {
  /** The bytes of the tar. */
  readonly size: number;
  /** The byte with which each entry begins. */
  private readonly offsets: Float64Array;
  private readonly executable: Uint8Array;

  /** `files` are sorted. */
  constructor(private readonly files: readonly PackedFile[]) {
    this.offsets = new Float64Array(files.length + 1);
    this.executable = new Uint8Array(files.length);
    let at = 0;
    for (const [index, { name, file }] of files.entries()) {
      this.offsets[index] = at;
      at += headerBytes(name) + file.size + paddingOf(file.size);
    }
    this.offsets[files.length] = at;
    this.size = at + END_BYTES;
  }

  /** Reads all, and returns the sha256 of the tar. `onBytes` is called with the bytes that are read. Throws Refused. */
  async digest(onBytes: (done: number) => void): Promise<string> {
    const digest = sha256.create();
    let done = 0;
    for (const [index, { file }] of this.files.entries()) {
      let chunk = await this.slice(index, 0, Math.min(CHUNK, file.size));
      this.executable[index] = chunk[0] === 0x23 && chunk[1] === 0x21 ? 1 : 0; // #!
      digest.update(this.header(index));
      for (let at = chunk.length; ; at += chunk.length) {
        digest.update(chunk);
        onBytes((done += chunk.length));
        if (at >= file.size) break;
        chunk = await this.slice(index, at, Math.min(at + CHUNK, file.size));
      }
      digest.update(new Uint8Array(paddingOf(file.size)));
    }
    digest.update(new Uint8Array(END_BYTES));
    return [...digest.digest()].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  /** Returns the bytes from `start` to `end`. Needs `digest`. Throws Refused. */
  async read(start: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    const found = new Uint8Array(end - start);
    for (let index = this.indexAt(start); index < this.files.length; index++) {
      const begin = this.offsets[index] ?? 0;
      if (begin >= end) break;
      const header = this.header(index);
      put(found, header, begin - start);
      const content = begin + header.length;
      const size = this.files[index]?.file.size ?? 0;
      const [first, last] = [Math.max(start, content), Math.min(end, content + size)];
      if (first < last) found.set(await this.slice(index, first - content, last - content), first - start);
    }
    return found;
  }

  /** Returns the last entry that begins at this byte or before. */
  private indexAt(offset: number): number {
    let [low, high] = [0, this.files.length];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this.offsets[middle] ?? 0) <= offset) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  private header(index: number): Uint8Array {
    const { name, file } = this.files[index] as PackedFile;
    return headerOf(name, file.size, this.executable[index] === 1);
  }

  private async slice(index: number, start: number, end: number): Promise<Uint8Array> {
    const { name, file } = this.files[index] as PackedFile;
    const bytes = await bytesOf(name, file.slice(start, end));
    if (bytes.length !== end - start) throw unreadable(name);
    return bytes;
  }
}

/** Reads a file. Throws Refused. */
export async function bytesOf(name: string, file: Blob): Promise<Uint8Array> {
  try {
    return new Uint8Array(await file.arrayBuffer());
  } catch {
    throw unreadable(name);
  }
}

/** A browser says no more of a file that has changed than of one that it may not read. */
export function unreadable(name: string): Refused {
  return new Refused(
    `${name} cannot be read: it changed, or the browser lacks access. Choose the folder again.`,
  );
}

/** Copies as much of `bytes` as lies in `into`, where they begin at `at`. */
function put(into: Uint8Array, bytes: Uint8Array, at: number): void {
  const part = bytes.subarray(Math.max(0, -at), Math.max(0, into.length - at));
  if (part.length > 0) into.set(part, Math.max(0, at));
}
