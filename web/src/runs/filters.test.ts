import { expect, test } from "vitest";
import { addressOf, bodyOf, chipsOf, conditionsOf, isFiltered, textOf, UNFILTERED, valueOf } from "./filters";

const EACH =
  "q=unet&owner=ada&trainer=script&sweep=swp_1&schedule=sch_1&label=a%3A1&label=b%3A2%2C3&starred=true&archived=true&state=failed%2Crunning";

test("an address is read and written again with each condition, and with nothing else", () => {
  const conditions = conditionsOf(new URLSearchParams(`${EACH}&group=sweep&sort=-name`));
  expect(Object.keys(conditions)).toEqual(Object.keys(UNFILTERED));
  expect(addressOf(conditions).toString()).toBe(EACH);
  expect(isFiltered(conditionsOf(new URLSearchParams("jobs=a&sort=name&q=")))).toBe(false);
});

test("what nobody knows is left out", () => {
  const wrong = conditionsOf(new URLSearchParams("state=flying,failed&owner=a b&label=no key:1&starred=1"));
  expect(wrong).toEqual({ state: ["failed"] });
  expect(valueOf(wrong, "owner")).toBe("");
});

test("a request for all that match has texts, flags and lists as the service takes them", () => {
  expect(bodyOf(conditionsOf(new URLSearchParams("q=unet&label=a:1&starred=true&state=failed")))).toEqual({
    q: "unet",
    label: ["a:1"],
    starred: true,
    state: ["failed"],
  });
});

test("each condition is said in words, with what takes it back alone", () => {
  const chips = chipsOf(conditionsOf(new URLSearchParams("owner=ada&label=a:1&state=failed,running")));
  expect(chips).toEqual([
    { text: "of ada", without: { owner: null } },
    { text: "a: 1", without: { label: null } },
    { text: "failed", without: { state: "running" } },
    { text: "running", without: { state: "failed" } },
  ]);
  expect(textOf(conditionsOf(new URLSearchParams("q=run&sweep=swp_1")))).toBe("“run”, of one sweep");
});
