/** Asks a worker to pack a folder. */
import type { Listed } from "./listed";
import type { Summary } from "./packing";
import { Refused } from "./refused";
import type { Kind } from "./selecting";

export type ToWorker =
  | { readonly kind: "take"; readonly files: readonly Listed[] }
  | { readonly kind: "prepare"; readonly of: Kind }
  | { readonly kind: "digest" }
  | { readonly kind: "piece"; readonly start: number; readonly end: number };

export type FromWorker =
  | { readonly kind: "prepared"; readonly summary: Summary }
  | { readonly kind: "read"; readonly done: number }
  | { readonly kind: "digested"; readonly sha256: string }
  | { readonly kind: "piece"; readonly bytes: ArrayBuffer }
  /** `refused`: what to say to the person; null: it is a fault of the page. */
  | { readonly kind: "failed"; readonly refused: string | null; readonly fault: string };

type Answer<Name extends FromWorker["kind"]> = Extract<FromWorker, { kind: Name }>;

export class Packer {
  private readonly worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });

  /** Takes files of the folder. */
  take(files: readonly Listed[]): void {
    this.worker.postMessage({ kind: "take", files } satisfies ToWorker);
  }

  /** Says what of the files goes into the bundle. Throws Refused. */
  async prepare(of: Kind): Promise<Summary> {
    return (await this.ask({ kind: "prepare", of }, "prepared")).summary;
  }

  /** Returns the sha256 of the bundle. `onBytes` is called with the bytes that are read. Throws Refused. */
  async digest(onBytes: (done: number) => void): Promise<string> {
    return (await this.ask({ kind: "digest" }, "digested", onBytes)).sha256;
  }

  /** Returns bytes of the bundle, whose sha256 is known. Throws Refused. */
  async piece(start: number, end: number): Promise<ArrayBuffer> {
    return (await this.ask({ kind: "piece", start, end }, "piece")).bytes;
  }

  /** Ends the worker. What was asked is not answered. */
  close(): void {
    this.worker.terminate();
  }

  private ask<Name extends FromWorker["kind"]>(
    question: ToWorker,
    wanted: Name,
    onBytes: (done: number) => void = () => undefined,
  ): Promise<Answer<Name>> {
    return new Promise((resolve, reject) => {
      this.worker.onmessage = ({ data }: MessageEvent<FromWorker>) => {
        if (data.kind === "read") onBytes(data.done);
        else if (data.kind === "failed")
          reject(data.refused === null ? new Error(data.fault) : new Refused(data.refused));
        else if (data.kind === wanted) resolve(data as Answer<Name>);
      };
      this.worker.onerror = ({ message }) => reject(new Error(message || "the packing worker did not start"));
      this.worker.postMessage(question);
    });
  }
}
