import { expect, test } from "vitest";
import { askedOf, columnsOf, isGrouping, isSortable, metricOf, read, titleOf } from "./columns";
import { listText } from "../text/list";

test("columns have titles of few words", () => {
  const names = [
    "owner",
    "config.optimizer.lr",
    "metric:val/loss:best",
    "label:team",
    "config.ema.lr",
    "notes",
  ];
  expect(columnsOf(names).map(({ title }) => title)).toEqual([
    ...["Owner", "optimizer.lr", "val/loss best", "team", "ema.lr", "notes"],
  ]);
  expect(columnsOf(names).map(({ sort }) => sort !== null)).toEqual([true, true, true, true, true, false]);
  expect(askedOf(names)).not.toContain("owner");
  expect(titleOf("metric:a:b:max")).toBe("a:b max");
  expect([metricOf("label:a"), metricOf("metric:b")]).toEqual([null, null]);
});

test("the address holds names with commas, and leaves out what is no column", () => {
  const names = ["owner", "metric:a,b%2C:best", "config.optimizer.lr", "label:team"];
  expect(read(listText(names))).toEqual(names);
  expect(read("owner,owner,config[0],a b,metric:x,,$.a,config..b")).toEqual(["owner"]);
});

test("lists are sorted and grouped by what the service takes", () => {
  expect(["config.a", "label:a", "metric:a:max", "notes", "a'b.c"].map(isSortable)).toEqual([
    ...[true, true, true, false, false],
  ]);
  expect(["config.a", "label:a", "sweep", "metric:a.b:max", "name"].map(isGrouping)).toEqual([
    ...[true, true, true, false, false],
  ]);
});
