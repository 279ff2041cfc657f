/** A folder on its way, packed by what the worker runs, to a service that answers as the test says. */
import { afterEach, expect, test, vi } from "vitest";
import { serve, type Asked } from "../testing";
import type { Contents } from "./contents";
import type { Listed } from "./listed";
import { prepare } from "./packing";
import { Progress } from "./progress.svelte";
import type { Kind } from "./selecting";

afterEach(() => void vi.unstubAllGlobals());

/** Packs in the test's own thread. */
class Packs {
  readonly files: Listed[] = [];
  private contents: Contents | undefined;

  take(files: readonly Listed[]): void {
    this.files.push(...files);
  }

  async prepare(of: Kind) {
    const { contents, summary } = await prepare(this.files, of);
    this.contents = contents;
    return summary;
  }

  async digest(onBytes: (done: number) => void): Promise<string> {
    return (await this.contents?.digest(onBytes)) ?? "";
  }

  async piece(start: number, end: number): Promise<ArrayBuffer> {
    return (await this.contents?.read(start, end))?.buffer ?? new ArrayBuffer();
  }

  close(): void {
    this.files.length = 0;
  }
}

function file(path: string, text: string): File {
  return Object.defineProperty(new File([text], path.split("/").at(-1) ?? ""), "webkitRelativePath", {
    value: path,
  });
}

async function looked(...files: File[]): Promise<Progress> {
  const progress = new Progress("code", new Packs());
  await progress.look({ files });
  return progress;
}

/** Answers as a service that has nothing of the bundle, and takes what is sent. */
function takeAll({ method, path, query }: Asked): unknown {
  if (method !== "PUT") return method === "DELETE" && path.startsWith("v1/bundles/") ? {} : null;
  const size = Number(query.get("size"));
  return { size, received: size, state: "complete" };
}

test("a folder that was chosen is listed, and then uploaded", async () => {
  const asked = serve(takeAll);
  const progress = await looked(file("net/train.py", "1"), file("net/.env", "secret"));
  expect([progress.stage, progress.name, progress.summary?.files]).toEqual(["asks", "net", 1]);
  expect(progress.summary?.leftOut.map(({ path }) => path)).toEqual([".env"]);
  expect(asked).toEqual([]);
  expect(await progress.send()).toMatch(/^bundle:sha256:[0-9a-f]{64}$/);
  expect(asked.map(({ method }) => method)).toEqual(["GET", "PUT"]);
});

test("a file that cannot be read and a file that is no folder are told, and nothing is sent", async () => {
  const asked = serve(takeAll);
  const gone = file("net/train.py", "1");
  vi.spyOn(gone, "slice").mockReturnValue({
    arrayBuffer: () => Promise.reject(new Error()),
  } as unknown as Blob);
  const progress = await looked(gone);
  expect(await progress.send()).toBeNull();
  expect(progress.failure).toMatch(/^train\.py cannot be read: it changed/);
  expect(progress.mayGoOn).toBe(false);
  const none = new Progress("code", new Packs());
  await none.look({ entries: [null] });
  expect(none.failure).toBe("Drop one folder, not files.");
  expect(asked).toEqual([]);
});

test("what the service refuses is told, and may go on; cancel has it forgotten unless it is complete", async () => {
  let isFull = true;
  const asked = serve((each) => (isFull && each.method === "PUT" ? null : takeAll(each)));
  const progress = await looked(file("net/train.py", "1"));
  expect(await progress.send()).toBeNull();
  expect([progress.failure, progress.mayGoOn]).toEqual(["There is none.", true]);
  progress.cancel();
  expect(asked.at(-1)?.method).toBe("DELETE");
  const again = await looked(file("net/train.py", "1"));
  expect(await again.send()).toBeNull();
  isFull = false;
  expect(await again.send()).not.toBeNull();
  expect(again.failure).toBeNull();
  again.cancel();
  expect(asked.at(-1)?.method).toBe("PUT");
});

test("cancel before anything was sent deletes no bundle, which may have been there before", async () => {
  const asked = serve(takeAll);
  (await looked(file("net/train.py", "1"))).cancel();
  expect(asked).toEqual([]);
});
