import { expect, test } from "vitest";
import type { EstimateView } from "../api/wire";
import { clockText, estimateText, shortWhenText } from "./estimate";

/** Local times: what is shown does not depend on where the test runs. */
const at = (hour: number, minute = 0, day = 27): string =>
  new Date(2026, 10, day, hour, minute).toISOString();
const NOW = Date.parse(at(14));

function estimate(changes: Partial<EstimateView> = {}): EstimateView {
  const times = { expected: at(14, 20), low: at(14, 10), high: at(14, 40), made_at: at(14) };
  return { ...times, held: 158, of: 200, ...changes };
}

test("an estimate says between which times, and how many such estimates held", () => {
  expect(estimateText(estimate(), NOW)).toBe(
    "between 14:10 and 14:40; 79% of the last 200 estimates were right",
  );
  expect(shortWhenText(estimate(), NOW)).toBe("14:10–14:40");
});

test("with few outcomes it says one time, and that nobody knows how sure it is", () => {
  const few = estimate({ low: null, high: null, held: 0, of: 12 });
  expect(estimateText(few, NOW)).toBe("about 14:20; low confidence");
  expect(shortWhenText(few, NOW)).toBe("about 14:20");
  expect(estimateText(estimate({ held: 0, of: 0 }), NOW)).toContain(
    "between 14:10 and 14:40; low confidence",
  );
});

test("a job too far behind starts after a time, of which there is no record", () => {
  const far = estimate({ expected: null, high: null });
  expect([estimateText(far, NOW), shortWhenText(far, NOW)]).toEqual(["after 14:10", "after 14:10"]);
  expect(estimateText(estimate({ expected: null, low: null, high: null }), NOW)).toBe("");
});

test("an estimate older than five minutes says how old it is", () => {
  const aged = (minutes: number): string =>
    estimateText(estimate(), NOW + minutes * 60_000).slice(
      "between 14:10 and 14:40; 79% of the last 200 estimates were right".length,
    );
  expect([5, 12, 119, 120, 60 * 48].map(aged)).toEqual([
    "",
    " (estimated 12 minutes ago)",
    " (estimated 119 minutes ago)",
    " (estimated 2 hours ago)",
    expect.stringContaining("(estimated 2 days ago)"),
  ]);
});

test("another day has its date, once for both times, and another year that too", () => {
  const late = estimate({ low: at(23, 50), high: at(0, 20, 28) });
  expect(shortWhenText(late, NOW)).toBe("23:50–28 Nov 00:20");
  const other = estimate({ low: at(9, 5, 28), high: at(17, 0, 28) });
  expect(estimateText(other, NOW)).toMatch(/^between 28 Nov 09:05 and 17:00;/);
  expect(clockText(new Date(2027, 0, 3, 8).toISOString(), NOW)).toBe("3 Jan 2027 08:00");
  expect(shortWhenText(estimate({ low: at(14, 10), high: at(14, 10) }), NOW)).toBe("about 14:10");
});
