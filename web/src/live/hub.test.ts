import { afterEach, expect, test, vi } from "vitest";
import { Hub, union } from "./hub";
import type { FromFeed } from "./messages";
import { inbox, service } from "./testing";

afterEach(() => vi.useRealTimers());

const many = (count: number): Record<string, number> =>
  Object.fromEntries(Array.from({ length: count }, (_, at) => [`job_${at}`, at]));

test("the tabs' wishes are one, from the earliest position of each job", () => {
  const wishes = [
    { jobs: { a: 5, b: 1 }, topics: ["jobs"] as const },
    { jobs: { a: 3 }, topics: ["jobs", "queue"] as const },
  ];
  expect(union(wishes)).toEqual({ jobs: { a: 3, b: 1 }, topics: ["jobs", "queue"] });
});

test("the stream sends the secret of the newest session, which a tab tells", async () => {
  const { request, next } = service();
  const hub = new Hub<"tab">(() => undefined, request);
  hub.join("tab");
  hub.take("tab", { type: "session", secret: "one" });
  hub.take("tab", { type: "wish", wish: { jobs: {}, topics: ["queue"] } });
  expect((await next()).headers.get("x-csrf-token")).toBe("one");
  hub.take("tab", { type: "session", secret: "two" });
  hub.take("tab", { type: "retry" });
  expect((await next()).headers.get("x-csrf-token")).toBe("two");
  hub.take("tab", { type: "session", secret: null });
  hub.take("tab", { type: "leave" });
});

test("each tab hears what it asked for, over one connection", async () => {
  const { request, next } = service();
  const boxes = { one: inbox<FromFeed>(), other: inbox<FromFeed>() };
  const hub = new Hub<"one" | "other">((tab, message) => boxes[tab].take(message), request);
  for (const tab of ["one", "other"] as const) hub.join(tab);
  hub.take("one", { type: "wish", wish: { jobs: {}, topics: ["queue"] } });
  hub.take("other", { type: "wish", wish: { jobs: {}, topics: ["workers"] } });
  const stream = await next();
  expect(stream.url.searchParams.getAll("topic")).toEqual(["queue", "workers"]);
  await stream.send("queue", { changed: true });
  await stream.send("workers", { changed: true });
  await boxes.other.until((message) => message.type === "changed");
  const heard = (all: FromFeed[]): FromFeed[] => all.filter((message) => message.type === "changed");
  expect(heard(boxes.one.all)).toEqual([{ type: "changed", topic: "queue" }]);
  expect(heard(boxes.other.all)).toEqual([{ type: "changed", topic: "workers" }]);
  hub.take("one", { type: "leave" });
  hub.take("other", { type: "leave" });
});

test("more jobs than one stream has are all heard, over several of them", async () => {
  const { request, next } = service();
  const hub = new Hub<"tab">(() => undefined, request);
  hub.join("tab");
  hub.take("tab", { type: "wish", wish: { jobs: many(120), topics: ["queue"] } });
  const streams = [await next(), await next(), await next()].map(({ url }) => url.searchParams);
  const jobs = streams.map((query) => query.getAll("job"));
  expect(jobs.map(({ length }) => length)).toEqual([50, 50, 20]);
  expect(jobs.flat().toSorted()).toEqual(Object.keys(many(120)).toSorted());
  expect(streams.map((query) => query.getAll("topic"))).toEqual([["queue"], [], []]);
  hub.take("tab", { type: "leave" });
});

test("jobs that no stream has room for are read again and again, as long as they are wished for", () => {
  vi.useFakeTimers();
  const received: FromFeed[] = [];
  const hub = new Hub<"tab">((_, message) => received.push(message), service().request);
  hub.join("tab");
  hub.take("tab", { type: "wish", wish: { jobs: many(201), topics: [] } });
  vi.advanceTimersByTime(10_000);
  const missed = (): number => received.filter(({ type }) => type === "missed").length;
  expect(missed()).toBe(2);
  hub.take("tab", { type: "wish", wish: { jobs: many(200), topics: [] } });
  vi.advanceTimersByTime(10_000);
  expect(missed()).toBe(2);
  hub.take("tab", { type: "leave" });
});

test("a job that was not found once is live for who opens it later", async () => {
  const streams = service();
  let isThere = false;
  const request = ((target: string, init: RequestInit) => {
    if (isThere) return streams.request(target, init);
    return Promise.resolve(new Response("{}", { status: 404 }));
  }) as typeof fetch;
  const boxes = { one: inbox<FromFeed>(), other: inbox<FromFeed>() };
  const hub = new Hub<"one" | "other">((tab, message) => boxes[tab].take(message), request);
  const wish = { jobs: { job_a: 3 }, topics: [] };
  hub.join("one");
  hub.take("one", { type: "wish", wish });
  await boxes.one.until(({ type }) => type === "deleted");
  isThere = true;
  hub.join("other");
  hub.take("other", { type: "wish", wish });
  expect((await streams.next()).url.searchParams.getAll("job")).toEqual(["job_a"]);
  for (const tab of ["one", "other"] as const) hub.take(tab, { type: "leave" });
});
