/** The component, with a stand-in for its worker. */
import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { removeAll, show, textOf } from "../testing";
import Markdown from "./Markdown.svelte";
import { parse } from "./parse";
import { silentWorkers, type StandIn } from "./testing";

let workers: readonly StandIn[];

beforeEach(() => {
  vi.useFakeTimers();
  workers = silentWorkers();
});

afterEach(async () => {
  await removeAll();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function answer(text: string): void {
  workers.at(-1)?.say("loaded");
  workers.at(-1)?.say(parse(text));
  flushSync();
}

function wait(milliseconds: number): void {
  vi.advanceTimersByTime(milliseconds);
  flushSync();
}

const isAwaited = (host: Element): boolean => host.querySelector(".awaited") !== null;

test("a text takes its place at once, and is seen as it is written where its worker takes long", () => {
  const host = show(Markdown, { text: "a **b**\u200b" });
  expect([isAwaited(host), textOf(host)]).toEqual([true, "a **b**⟨U+200B⟩"]);
  wait(200);
  expect([isAwaited(host), textOf(host)]).toEqual([false, "a **b**⟨U+200B⟩"]);
  answer("a **b**");
  expect([textOf(host.querySelector("strong")), textOf(host)]).toEqual(["b", "a b"]);
});

test("a text that cannot be parsed is shown as it is written, and a line says so", () => {
  const host = show(Markdown, { text: "a **b**" });
  workers[0]?.say("loaded");
  wait(3_000);
  expect(textOf(host)).toBe("Shown unformatted. a **b**");
});

test("the text before stays for a moment, and never comes back", () => {
  const props = $state({ text: "*a*" });
  const host = show(Markdown, props);
  answer("*a*");
  props.text = "*b*";
  flushSync();
  expect(textOf(host)).toBe("a");
  wait(200);
  expect(textOf(host)).toBe("*b*");
  answer("*b*");
  expect(textOf(host.querySelector("em"))).toBe("b");
});

test("the worker ends with the component", async () => {
  show(Markdown, { text: "a" });
  expect(workers[0]?.isEnded).toBe(false);
  await removeAll();
  expect(workers[0]?.isEnded).toBe(true);
});
