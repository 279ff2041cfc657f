import { expect, test } from "vitest";
import { Reading } from "./reading.svelte";

type Answer = (value: string) => void;

/** A reading whose answers a test gives, in any order. */
function asked(): { reading: Reading<string>; answers: Answer[]; signals: AbortSignal[] } {
  const answers: Answer[] = [];
  const signals: AbortSignal[] = [];
  const reading = new Reading((signal) => {
    signals.push(signal);
    return new Promise<string>((resolve) => answers.push(resolve));
  });
  return { reading, answers, signals };
}

test("an older answer that comes later does not replace a newer one, and its request is ended", async () => {
  const { reading, answers, signals } = asked();
  const reads = [reading.read(), reading.read()];
  expect(signals.map(({ aborted }) => aborted)).toEqual([true, false]);
  answers[1]?.("after the change");
  answers[0]?.("before it");
  await Promise.all(reads);
  expect(reading.value).toBe("after the change");
});

test("what is closed takes no answer", async () => {
  const { reading, answers } = asked();
  const read = reading.read();
  reading.close();
  answers[0]?.("late");
  await read;
  expect(reading.value).toBeNull();
});
