import { expect, test } from "vitest";
import type { JobSummary } from "../../api/wire";
import { choiceOf, choiceText, FIRST, groupIdOf, groupsOf, idsOf, MOST, toggledRun } from "./chosen";

const id = (number: number): string => `job_${number.toString(16).padStart(32, "0")}`;

function row(number: number, changes: Record<string, unknown> = {}): JobSummary {
  return { id: id(number), name: `job ${number}`, labels: {}, ...changes } as unknown as JobSummary;
}

const ROWS = Array.from({ length: 300 }, (_, i) => row(i));
const choice = (runs: string): ReturnType<typeof choiceOf> => choiceOf(new URLSearchParams({ runs }));

test("the first of the list are drawn, as many as charts take with `all`, and else those that were chosen", () => {
  expect(idsOf(choiceOf(new URLSearchParams()), ROWS)).toEqual(ROWS.slice(0, FIRST).map((job) => job.id));
  expect(idsOf(choice("all"), ROWS)).toHaveLength(MOST);
  expect(idsOf(choice("none"), ROWS)).toEqual([]);
  const chosen = choice(choiceText([id(999), id(2), id(1), id(2)]));
  expect(idsOf(chosen, ROWS)).toEqual([id(1), id(2), id(999)]);
});

test("an address takes 200 chosen runs, and what is no id in it chooses none", () => {
  const ids = ROWS.map((job) => job.id);
  expect(choice(choiceText(ids)).ids).toEqual(ids.slice(0, MOST));
  expect(new URLSearchParams({ runs: choiceText(ids.slice(0, MOST)) }).toString().length).toBeLessThan(7000);
  expect(choice("__proto__.x..%00").ids).toEqual([]);
});

test("an eye that closes hides a run of the first ones, and takes out one that was chosen", () => {
  const first = choiceOf(new URLSearchParams());
  const ids = idsOf(first, ROWS);
  expect(toggledRun(id(3), first, ids, [])).toEqual({ hide: [id(3)] });
  expect(toggledRun(id(3), first, ids, [id(3), id(4)])).toEqual({ hide: [id(4)] });
  const opened = toggledRun(id(50), first, ids, []);
  expect(choice(opened.runs ?? "").ids).toEqual([...ids, id(50)]);
  const chosen = choice(choiceText([id(1), id(2)]));
  const left = toggledRun(id(1), chosen, [id(1), id(2)], []);
  expect(choice(left.runs ?? "").ids).toEqual([id(2)]);
  expect(toggledRun(id(2), choice(left.runs ?? ""), [id(2)], [])).toEqual({ runs: "none" });
});

test("jobs of one value are one line; numbers are one however they are written, and jobs without it a group", () => {
  const jobs = [
    row(1, { columns: { "config.lr": 0.00001 }, sweep: { id: "swp_1", name: "lr" } }),
    row(2, { columns: { "config.lr": 0.00001 }, labels: { team: "a b" } }),
    row(3, { columns: { "config.lr": null } }),
  ];
  const groups = groupsOf(jobs, "config.lr");
  expect(groups.map((group) => [group.name, group.jobs])).toEqual([
    ["lr 0.00001", [id(1), id(2)]],
    ["without lr", [id(3)]],
  ]);
  expect(groups[0]?.id).toBe(groupIdOf("1e-05"));
  expect(groupsOf(jobs, "sweep").map(({ name }) => name)).toEqual(["lr", "without sweep"]);
  expect(groupsOf(jobs, "label:team").map(({ id: group }) => group)).toEqual([
    groupIdOf(null),
    groupIdOf("a b"),
  ]);
  expect(groupsOf(jobs, "label:constructor")).toHaveLength(1);
});
