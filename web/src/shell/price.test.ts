import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ApiError } from "../api/client";
import type { StopView } from "../api/wire";
import { settled } from "../testing";
import { Price } from "./price.svelte";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

async function said(stop: Partial<StopView> | null, ofMany = false): Promise<string | null> {
  const price = new Price(() => Promise.resolve(stop as StopView | null), ofMany);
  price.ask();
  await settled();
  return price.text;
}

test("a price is a sentence: of a job that the page does not name, with its name", async () => {
  const jobs = [{ name: "unet" }] as unknown as StopView["jobs"];
  const saves = "saves a checkpoint first; if that fails, 412 steps are lost";
  expect(await said({ message: saves, total: 1, jobs })).toBe(
    "Saves a checkpoint first; if that fails, 412 steps are lost.",
  );
  expect(await said({ message: saves, total: 1, jobs }, true)).toBe(`unet: ${saves}.`);
  expect(await said({ message: "2 running jobs", total: 2, jobs }, true)).toBe("2 running jobs.");
  expect(await said({ message: "nothing is lost: no job is running", total: 0, jobs: [] }, true)).toBe(
    "Nothing is lost: no job is running.",
  );
  expect(await said(null)).toBeNull(); // an older service answers none
});

test("a price is not asked for again within ten seconds, and a failing answer takes it away", async () => {
  const read = vi.fn(() => Promise.resolve({ message: "a", total: 0, jobs: [], device_seconds: 0 }));
  const price = new Price(read, false);
  price.ask();
  price.ask();
  await settled();
  expect([read.mock.calls.length, price.text]).toEqual([1, "A."]);
  await vi.advanceTimersByTimeAsync(10_000);
  read.mockRejectedValueOnce(new ApiError(409, "conflict", "It has ended."));
  price.ask();
  await settled();
  expect([read.mock.calls.length, price.text]).toEqual([2, null]);
});
