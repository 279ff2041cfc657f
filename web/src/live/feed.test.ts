import { afterEach, expect, test } from "vitest";
import { Feed } from "./feed";
import type { FromFeed } from "./messages";
import { inbox, service } from "./testing";

const feeds: Feed[] = [];
afterEach(() => feeds.splice(0).forEach((feed) => feed.close()));

function start(request: typeof fetch): { feed: Feed; received: ReturnType<typeof inbox<FromFeed>> } {
  const received = inbox<FromFeed>();
  const feed = new Feed(received.take, request);
  feeds.push(feed);
  return { feed, received };
}

function items(position: number): Record<string, unknown> {
  return { job_id: "job_a", position, metrics: {}, logs: [], events: [] };
}

const isItems = (message: FromFeed): boolean => message.type === "items";

test("a stream that was cut goes on after what was heard, and a repeat is dropped", async () => {
  const { request, next } = service();
  const { feed, received } = start(request);
  feed.ask({ jobs: { job_a: 5 }, topics: ["queue"] });
  const first = await next();
  expect(first.url.searchParams.get("after")).toBe("job_a:5");
  expect(first.url.searchParams.getAll("topic")).toEqual(["queue"]);
  await first.send("ready", "");
  await first.send("items", items(9));
  await received.until(isItems);
  await first.end();
  await received.until((message) => message.type === "state" && message.state.status === "polling");

  const second = await next();
  expect(second.url.searchParams.get("after")).toBe("job_a:9");
  await second.send("ready", "");
  await second.send("items", items(9));
  await second.send("items", items(12));
  await received.until((message) => message.type === "items" && message.items.position === 12);
  expect(received.all.filter(isItems).map((message) => message.type === "items" && message.from)).toEqual([
    5, 9,
  ]);
});

test("a line without an end is passed on, and is no place to go on", async () => {
  const { request, next } = service();
  const { feed, received } = start(request);
  feed.ask({ jobs: { job_a: 5 }, topics: [] });
  const first = await next();
  await first.send("ready", "");
  const line = { job_id: "job_a", attempt: 1, rank: 0, stream: "stdout", text: "9%" };
  await first.send("live", line);
  expect(await received.until((message) => message.type === "line")).toEqual({ type: "line", line });
  await first.end();
  expect((await next()).url.searchParams.get("after")).toBe("job_a:5");
});

test("a connection says that it begins, and one after a break that something may have been missed", async () => {
  const { request, next } = service();
  const { feed, received } = start(request);
  feed.ask({ jobs: {}, topics: ["jobs"] });
  const first = await next();
  await first.send("ready", "");
  await received.until((message) => message.type === "ready");
  expect(feed.now()).toEqual({ status: "live", retryIn: null });
  await first.end();
  await (await next()).send("ready", "");
  await received.until((message) => message.type === "missed");
  expect(received.all.filter((message) => message.type === "ready")).toHaveLength(1);
});

test("a wider wish keeps the place of the jobs that are heard", async () => {
  const { request, next } = service();
  const { feed, received } = start(request);
  feed.ask({ jobs: { job_a: 1 }, topics: [] });
  const first = await next();
  await first.send("ready", "");
  await first.send("items", items(4));
  await received.until(isItems);
  feed.ask({ jobs: { job_a: 2, job_b: 7 }, topics: [] });
  expect((await next()).url.searchParams.get("after")).toBe("job_a:4,job_b:7");
});

test("a deletion is passed on, and the list has changed", async () => {
  const { request, next } = service();
  const { feed, received } = start(request);
  feed.ask({ jobs: {}, topics: ["jobs"] });
  await (await next()).send("jobs", { job_id: "job_a", deleted: true });
  await received.until((message) => message.type === "changed");
  expect(received.all).toContainEqual({ type: "deleted", jobId: "job_a" });
});

test("a job that was deleted does not end the stream of the others", async () => {
  const received = inbox<FromFeed>();
  const streams = service();
  const request = ((target: string, init: RequestInit) => {
    if (!target.includes("job_gone"))
      return target.includes("stream") ? streams.request(target, init) : answer(200);
    return answer(404);
  }) as typeof fetch;
  const answer = (status: number): Promise<Response> => Promise.resolve(new Response("{}", { status }));
  const feed = new Feed(received.take, request);
  feeds.push(feed);
  feed.ask({ jobs: { job_a: 1, job_gone: 2 }, topics: [] });
  expect((await streams.next()).url.searchParams.getAll("job")).toEqual(["job_a"]);
  expect(received.all).toEqual([{ type: "deleted", jobId: "job_gone" }]);
});

test("a service that answers 401 ends the session, and is not asked again", async () => {
  const received = inbox<FromFeed>();
  const feed = new Feed(received.take, (() =>
    Promise.resolve(new Response("", { status: 401 }))) as typeof fetch);
  feeds.push(feed);
  feed.ask({ jobs: {}, topics: ["jobs"] });
  await received.until((message) => message.type === "signed-out");
  expect(received.all).toEqual([{ type: "signed-out" }]);
});

test("a service that cannot be reached is lost, and is tried again", async () => {
  let tries = 0;
  const received = inbox<FromFeed>();
  const request = (() => {
    tries += 1;
    return Promise.reject(new TypeError("refused"));
  }) as typeof fetch;
  const feed = new Feed(received.take, request);
  feeds.push(feed);
  feed.ask({ jobs: {}, topics: ["jobs"] });
  await received.until((message) => message.type === "state" && message.state.status === "lost");
  await received.until(() => tries > 1);
  feed.retry();
});
