import { expect, test } from "vitest";
import { filterOf, queryOf } from "./filter";
import { labelChanges, labelsText } from "./edits";
import { near } from "./window";

test("the address holds the filter", () => {
  const filter = filterOf(new URLSearchParams("q=digits&sweep=swp_1&state=failed,running&sort=-name"));
  expect(filter).toEqual({
    q: "digits",
    sweep: "swp_1",
    ...{ owner: "", label: "", isStarred: false, isArchived: false, groupBy: "" },
    states: ["running", "failed"],
    sort: "name",
    isReversed: true,
  });
  expect(queryOf(filter)).toEqual({
    q: "digits",
    sweep: "swp_1",
    ...{ owner: null, label: null, starred: null, archived: null },
    state: ["running", "failed"],
    sort: "-name",
  });
});

test("what the address has and nobody knows is left out", () => {
  expect(queryOf(filterOf(new URLSearchParams("state=flying&sort=-colour&owner=a b")))).toEqual({
    q: null,
    sweep: null,
    ...{ owner: null, label: null, starred: null, archived: null },
    state: [],
    sort: "created",
  });
});

test("the address says which marks and which label jobs have", () => {
  const filter = filterOf(new URLSearchParams("label=team:a b&starred=true&archived=true&group=team"));
  expect(queryOf(filter)).toMatchObject({ label: "team:a b", starred: true, archived: true });
  expect(filter.groupBy).toBe("label:team");
  expect(filterOf(new URLSearchParams("group=sweep")).groupBy).toBe("sweep");
  expect(filterOf(new URLSearchParams("group=config.optimizer.lr")).groupBy).toBe("config.optimizer.lr");
  const wrong = filterOf(new URLSearchParams("label=no key:1&starred=1&group=no key"));
  expect([wrong.label, wrong.isStarred, wrong.groupBy]).toEqual(["", false, ""]);
});

test("only rows near the screen are drawn", () => {
  expect(near(10_000, 32, 200, 800)).toEqual({ from: 0, to: 27 });
  expect(near(10_000, 32, -32_000, 800)).toEqual({ from: 992, to: 1033 });
  expect(near(10, 32, 200, 800)).toEqual({ from: 0, to: 10 });
  expect(near(100, 32, -9_000, 800)).toEqual({ from: 92, to: 100 });
});

test("labels are edited as one text", () => {
  const labels = { team: "roads", done: "", note: "a=b" };
  expect(labelsText(labels)).toBe("done, note=a=b, team=roads");
  expect(labelChanges(labels, labelsText(labels))).toBeNull();
  expect(labelChanges(labels, "team=bridges,, note=a=b , new")).toEqual({
    team: "bridges",
    done: null,
    new: "",
  });
});
