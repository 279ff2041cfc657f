import { afterEach, expect, test, vi } from "vitest";
import type { JobSummary } from "../api/wire";
import { removeAll, serve } from "../testing";
import { Sparks } from "./sparks.svelte";

afterEach(async () => {
  await removeAll();
  vi.unstubAllGlobals();
});

test("curves of rows are read once they stay where they are, whatever changes in them", async () => {
  const asked: (readonly string[])[] = [];
  serve(({ query }) => {
    asked.push(query.getAll("job"));
    return { series: [] };
  });
  const sparks = new Sparks();
  await sparks.wantAtRest([job("a"), job("b")]);
  await sparks.wantAtRest([job("b"), job("c")]);
  expect(asked).toEqual([]);
  await sparks.wantAtRest([{ ...job("b"), position: 2 }, job("c")]);
  expect(asked).toEqual([["b", "c"]]);
});

function job(id: string): JobSummary {
  return { id, position: 1, metrics: { "val/loss": 0.5 }, best: null } as unknown as JobSummary;
}
