/** The worker that packs a folder: a large one does not stop the page. It answers one question after the other. */
import type { Contents } from "./contents";
import type { Listed } from "./listed";
import { prepare } from "./packing";
import type { FromWorker, ToWorker } from "./packer";
import { Refused } from "./refused";

const APART_MS = 100;

const all: Listed[] = [];
let contents: Contents | null = null;

onmessage = ({ data }: MessageEvent<ToWorker>) => {
  void answer(data).catch((error: unknown) =>
    say({ kind: "failed", refused: wordsOf(error), fault: String(error) }),
  );
};

async function answer(asked: ToWorker): Promise<void> {
  switch (asked.kind) {
    case "take":
      all.push(...asked.files);
      return;
    case "prepare": {
      const prepared = await prepare(all.splice(0), asked.of);
      contents = prepared.contents;
      return say({ kind: "prepared", summary: prepared.summary });
    }
    case "digest": {
      let saidAt = 0;
      const sha256 = await contents?.digest((done) => {
        if (performance.now() - saidAt < APART_MS) return;
        saidAt = performance.now();
        say({ kind: "read", done });
      });
      return say({ kind: "digested", sha256: sha256 ?? "" });
    }
    case "piece": {
      const bytes = await contents?.read(asked.start, asked.end);
      const buffer = bytes?.buffer ?? new ArrayBuffer();
      return say({ kind: "piece", bytes: buffer }, [buffer]);
    }
  }
}

function wordsOf(error: unknown): string | null {
  return error instanceof Refused ? error.message : null;
}

function say(message: FromWorker, moved: Transferable[] = []): void {
  postMessage(message, { transfer: moved });
}
