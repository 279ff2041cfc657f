/** Uploads, to a service that keeps what arrives of a bundle, and whose connection may be cut. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { upload } from "./uploading";

/** More than two pieces. */
const TAR = new Uint8Array(9 << 20).map((_, at) => at % 251);

class Kept {
  bytes = new Uint8Array();
  size = 0;
  /** The offset of each request that sent some. */
  readonly offsets: number[] = [];
  /** What the next requests that send some are answered in place of the usual; `cut` keeps half of the bytes. */
  troubles: ("cut" | { status: number; code: string })[] = [];

  async answer(target: string, { method = "GET", body }: RequestInit): Promise<Response> {
    if (method === "GET" && this.size === 0) return problem(404, "not_found");
    if (method === "GET") return this.view(200);
    const query = new URL(target).searchParams;
    const offset = Number(query.get("offset"));
    this.size = Number(query.get("size"));
    this.offsets.push(offset);
    if (offset !== this.bytes.length) return problem(409, "conflict");
    const sent = new Uint8Array(await (body as Blob).arrayBuffer());
    const trouble = this.troubles.shift();
    if (trouble === "cut") this.append(sent.subarray(0, sent.length / 2));
    if (trouble === "cut") throw new TypeError("the connection was cut");
    if (trouble) return problem(trouble.status, trouble.code);
    this.append(sent);
    return this.view(this.bytes.length === this.size ? 201 : 202);
  }

  append(bytes: Uint8Array): void {
    const before = this.bytes;
    this.bytes = new Uint8Array(before.length + bytes.length);
    this.bytes.set(before);
    this.bytes.set(bytes, before.length);
  }

  private view(status: number): Response {
    const received = this.bytes.length;
    const state = received === this.size ? "complete" : "partial";
    return new Response(JSON.stringify({ size: this.size, received, state }), { status });
  }
}

let kept: Kept;

beforeEach(() => {
  kept = new Kept();
  vi.stubGlobal("fetch", (target: string, init: RequestInit) => kept.answer(target, init));
  vi.stubGlobal("setTimeout", (then: () => void) => queueMicrotask(then)); // no pause between two tries
});

afterEach(() => void vi.unstubAllGlobals());

/** Uploads the tar. Returns what it said meanwhile. */
async function send(): Promise<readonly [number, string | null][]> {
  const said: [number, string | null][] = [];
  await upload({
    sha256: "0".repeat(64),
    size: TAR.length,
    piece: async (start, end) => TAR.slice(start, end).buffer,
    tell: (received, trouble) => said.push([received, trouble]),
    signal: new AbortController().signal,
  });
  return said;
}

test("a bundle is sent in pieces, and one that is there is not sent again", async () => {
  const said = await send();
  expect(Buffer.compare(kept.bytes, TAR)).toBe(0);
  expect(kept.offsets).toEqual([0, 4 << 20, 8 << 20]);
  expect(said.map(([received]) => received)).toEqual([0, 4 << 20, 8 << 20, TAR.length]);
  await send();
  expect(kept.offsets).toHaveLength(3);
});

test("after a cut it goes on behind what has arrived, and so does a page that was loaded again", async () => {
  kept.troubles = ["cut", "cut"];
  const said = await send();
  expect(Buffer.compare(kept.bytes, TAR)).toBe(0);
  expect(kept.offsets.slice(0, 3)).toEqual([0, 2 << 20, 4 << 20]);
  expect(said[1]).toEqual([0, "The service does not answer."]);
  kept = new Kept();
  kept.size = TAR.length;
  kept.append(TAR.subarray(0, 5_000_001));
  await send();
  expect(kept.offsets[0]).toBe(5_000_001);
  expect(Buffer.compare(kept.bytes, TAR)).toBe(0);
});

test("a full disk is waited for, and not without end", async () => {
  kept.troubles = [{ status: 503, code: "unavailable" }];
  expect((await send()).map(([, trouble]) => trouble)).toContain("It is so.");
  kept = new Kept();
  kept.troubles = Array.from({ length: 20 }, () => ({ status: 503, code: "unavailable" }));
  await expect(send()).rejects.toThrow("It is so.");
  expect(kept.offsets).toHaveLength(9);
});

test("a quota, a lost session and too many uploads end it at once", async () => {
  for (const trouble of [
    { status: 403, code: "quota_exceeded" },
    { status: 401, code: "unauthorized" },
    { status: 409, code: "conflict" },
  ]) {
    kept = new Kept();
    kept.troubles = [trouble];
    await expect(send()).rejects.toMatchObject({ status: trouble.status });
    expect(kept.offsets).toEqual([0]);
  }
});

function problem(status: number, code: string): Response {
  const said = { code, detail: "It is so.", request_id: "req_1", errors: [] };
  return new Response(JSON.stringify(said), { status });
}
