import { expect, test } from "vitest";
import type { JobSummary } from "../api/wire";
import { StreamedRows } from "./streamed.svelte";

function row(id: string, changes: Partial<JobSummary> = {}): JobSummary {
  return { id, version: 1, position: 1, metrics: {}, ...changes } as JobSummary;
}

test("what the stream has sent of a job counts over an older answer, which has the columns", () => {
  const rows = new StreamedRows();
  rows.take(row("a", { version: 3, name: "newer" }));
  expect(rows.known(row("a", { name: "older", columns: { lr: 1 } }))).toMatchObject({
    name: "newer",
    columns: { lr: 1 },
  });
  expect(rows.known(row("a", { version: 4, name: "newest" })).name).toBe("newest");
});

test("rows of jobs that no list has do not add up", () => {
  const rows = new StreamedRows();
  for (let at = 0; at < 100; at++) rows.take(row(`job_${at}`));
  rows.keep([row("job_7")]);
  expect(rows.size).toBe(1);
});
