import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { UsageRow } from "../../api/wire";
import { href, navigate, route } from "../../router.svelte";
import { click, removeAll, serve, settled, show, signIn, textOf, textsOf } from "../../testing";
import Usage from "./Usage.svelte";
import { barsOf, hoursText } from "./usage";

const NOW = Date.parse("2026-11-27T10:00:00Z");
const NONE = { gpu_hours: 0, cpu_slot_hours: 0, gpu_utilization: null, idle_gpu_hours: 0 };

beforeEach(() => {
  vi.useFakeTimers({ now: NOW });
  vi.stubGlobal("scrollTo", () => undefined);
});

afterEach(async () => {
  await removeAll();
  navigate(href(""));
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function row(owner: string, changes: Partial<UsageRow> = {}): UsageRow {
  const period = { gpu_hours: 36.4, cpu_slot_hours: 0, gpu_utilization: 0.873, idle_gpu_hours: 0.04 };
  const days = [
    { ...NONE, day: "2026-10-29", gpu_hours: 30 },
    { ...NONE, day: "2026-11-27", gpu_hours: 6.4 },
  ];
  return { owner, label: null, days, period, total: { ...period, gpu_hours: 1234.5 }, ...changes };
}

test("each owner has a row: hours in the days and in all, utilization and idle hours", async () => {
  signIn("viewer", "cluster:read");
  const asked = serve(() => ({ data: [row("ada")], has_more: false, next: null }));
  const host = show(Usage, {});
  await settled();
  expect(textsOf(host, "td")).toEqual(["ada", "", "36", "1,235", "87%", "<0.1", "0", "0"]);
  expect(host.querySelector("td svg")?.getAttribute("aria-label")).toBe(
    "GPU-hours of ada by day: at most 30 on 2026-10-29",
  );
  expect(asked.map(({ path, query }) => [path, query.get("by"), query.get("days")])).toEqual([
    ["v1/usage", "owner", "30"],
  ]);
  expect(textsOf(host, "button"), "labels are those of jobs").toEqual(["CSV"]);
});

test("the rows of labels are in the address, and go on page by page", async () => {
  signIn("member", "cluster:read", "jobs:read");
  const asked = serve(({ query }) => {
    if (query.get("by") === "owner") return { data: [row("ada")], has_more: false, next: null };
    const isFirst = !query.has("after");
    const label = isFirst ? "project=cracks" : "project=digits";
    return { data: [row("ada", { label })], has_more: isFirst, next: isFirst ? "c" : null };
  });
  const host = show(Usage, {});
  await settled();
  click(host, "by label");
  await settled();
  expect(route().query.get("usage")).toBe("label");
  click(host, "More");
  await settled();
  expect(textsOf(host, "td.label")).toEqual(["project=cracks", "project=digits"]);
  expect(textsOf(host, "button")).not.toContain("More");
  expect(asked.at(-1)?.query.get("after")).toBe("c");
});

test("where nobody had a device, it says how to begin; a failure is shown and tried again", async () => {
  signIn("viewer", "cluster:read", "jobs:read");
  serve(() => null);
  const host = show(Usage, {});
  await settled();
  expect(textOf(host.querySelector("[role=alert]"))).toContain("The usage cannot be read.");
  serve(() => ({ data: [], has_more: false, next: null }));
  click(host, "Try again");
  await settled();
  expect([textOf(host.querySelector("p code")), host.querySelector("[role=alert]")]).toEqual([
    "torchyard run train.py",
    null,
  ]);
});

test("bars are of the days of UTC up to today, and of CPU slots where there is no GPU", () => {
  const { values } = barsOf(row("ada"), NOW);
  expect([values.length, values[0], values.at(-1), values[1]]).toEqual([30, 30, 6.4, 0]);
  const slots = row("ada", {
    label: "a=b",
    days: [{ ...NONE, day: "2026-11-26", cpu_slot_hours: 2 }],
    period: { ...NONE, cpu_slot_hours: 2 },
  });
  expect(barsOf(slots, NOW).label).toBe("CPU-slot-hours of ada, a=b by day: at most 2 on 2026-11-26");
  expect(barsOf(row("ada", { days: [], period: NONE }), NOW).label).toBe("CPU-slot-hours of ada by day");
  expect([0, 0.04, 3.44, 9.96, 1234.5].map(hoursText)).toEqual(["0", "<0.1", "3.4", "10", "1,235"]);
});
