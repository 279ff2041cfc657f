import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test, vi } from "vitest";
import { removeAll, show } from "../testing";
import { momentText } from "../text/moment";
import Time from "./Time.svelte";

const SOURCE = join(import.meta.dirname, "..");
/** They have the moment as the title of the row, or are words of one sentence. */
const OTHERS = /^(shell\/Time|pages\/(jobs|sweeps)\/.*|pages\/schedules\/Schedules)\.svelte$/;

afterEach(async () => {
  await removeAll();
  vi.useRealTimers();
});

test("an age has the moment under the pointer, in the reader's time, and a moment has its age", () => {
  vi.useFakeTimers({ now: new Date(2026, 10, 30, 12, 0, 0) });
  const time = new Date(2026, 10, 30, 11, 30, 0).toISOString();
  const found = (["ago", "age", "moment"] as const).map((as) => {
    const element = show(Time, { time, as }).querySelector("time");
    return [element?.textContent, element?.title];
  });
  const moment = "2026-11-30 11:30:00";
  expect(momentText(time)).toBe(moment);
  expect(found.map(([text]) => text)).toEqual(["30m ago", "30m", moment]);
  expect(found.map(([, title]) => title)).toEqual([moment, moment, "30m ago"]);
});

test("no other component writes an age or a date in a form of its own", () => {
  const files = readdirSync(SOURCE, { recursive: true, encoding: "utf8" }).filter(
    (name) => name.endsWith(".svelte") && !OTHERS.test(name),
  );
  const own = files.filter((name) =>
    /\b(ago|age|until)\(|toLocaleString\("(en-GB|sv)/.test(readFileSync(join(SOURCE, name), "utf8")),
  );
  expect(own).toEqual(["pages/submit/Verdict.svelte"]); // in a sentence beside the time itself
});
