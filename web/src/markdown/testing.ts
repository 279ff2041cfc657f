/** Stands in for the worker in tests of components. */
import { vi } from "vitest";
import { parse } from "./parse";
import type { FromWorker } from "./reader";

export class StandIn {
  onmessage: ((event: MessageEvent<FromWorker>) => void) | null = null;
  onerror: (() => void) | null = null;
  readonly texts: string[] = [];
  isEnded = false;

  postMessage(text: string): void {
    this.texts.push(text);
  }

  terminate(): void {
    this.isEnded = true;
  }

  say(data: FromWorker): void {
    this.onmessage?.(new MessageEvent("message", { data }));
  }
}

/** Lets components start workers, which say nothing by themselves. Returns them. */
export function silentWorkers(): readonly StandIn[] {
  const all: StandIn[] = [];
  vi.stubGlobal(
    "Worker",
    class extends StandIn {
      constructor() {
        super();
        all.push(this);
      }
    },
  );
  return all;
}

/** Lets components start workers that parse what they are sent. */
export function parsingWorkers(): void {
  vi.stubGlobal(
    "Worker",
    class extends StandIn {
      override postMessage(text: string): void {
        queueMicrotask(() => this.say(parse(text)));
      }
    },
  );
}
