import { expect, test } from "vitest";
import { Hub, union } from "./hub";
import type { FromFeed } from "./messages";
import { inbox, service } from "./testing";

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
