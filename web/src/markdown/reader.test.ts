import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Block } from "./tree";
import { Reader } from "./reader";
import { silentWorkers, type StandIn } from "./testing";

const A: readonly Block[] = [{ kind: "code", text: "a" }];

let workers: readonly StandIn[];
let reader: Reader;
let answers: (readonly Block[] | null)[];

beforeEach(() => {
  vi.useFakeTimers();
  workers = silentWorkers();
  reader = new Reader();
  answers = [];
});

afterEach(() => {
  reader.close();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function read(text: string): void {
  reader.read(text, (blocks) => answers.push(blocks));
}

test("one worker parses text after text, and starts with the first", () => {
  expect(workers.length).toBe(0);
  read("a");
  workers[0]?.say("loaded");
  workers[0]?.say(A);
  read("b");
  workers[0]?.say([]);
  vi.runAllTimers();
  expect(answers).toEqual([A, []]);
  expect(workers.map(({ texts, isEnded }) => [texts, isEnded])).toEqual([[["a", "b"], false]]);
});

test("a text that is not parsed in time ends its worker, and the next one has another", () => {
  read("a");
  vi.runAllTimers();
  expect(answers).toEqual([]); // loading takes as long as it does
  workers[0]?.say("loaded");
  vi.runAllTimers();
  workers[0]?.say(A);
  expect([answers, workers[0]?.isEnded]).toEqual([[null], true]);
  read("b");
  workers[1]?.say("loaded");
  workers[1]?.say(A);
  read("c"); // its worker is loaded already
  vi.runAllTimers();
  expect([answers, workers[1]?.isEnded]).toEqual([[null, A, null], true]);
});

test("a later text ends what an earlier one keeps busy, and only it is answered", () => {
  read("a");
  read("b");
  workers[0]?.say(A);
  workers[1]?.say([]);
  expect([answers, workers.map(({ isEnded }) => isEnded)]).toEqual([[[]], [true, false]]);
});

test("who closes it ends its worker, and is not answered", () => {
  read("a");
  workers[0]?.say("loaded");
  reader.close();
  workers[0]?.say(A);
  vi.runAllTimers();
  expect([answers, workers[0]?.isEnded]).toEqual([[], true]);
});

test("a worker that fails, and a browser without workers, parse nothing", () => {
  read("a");
  workers[0]?.onerror?.();
  expect([answers, workers[0]?.isEnded]).toEqual([[null], true]);
  vi.stubGlobal("Worker", undefined);
  read("b");
  expect(answers).toEqual([null, null]);
});
