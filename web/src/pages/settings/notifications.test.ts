import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { MessageView, TargetView } from "../../api/wire";
import { click, removeAll, serve, settled, show, signIn, textOf, textsOf, type Asked } from "../../testing";
import Notifications from "./Notifications.svelte";

const AT = "2026-01-01T00:00:00Z";

function target(changes: Record<string, unknown> = {}): TargetView {
  return {
    ...{ id: "ntf_1", owner: "ada", name: "alerts", kind: "webhook", address: "https://a.example/…" },
    ...{ on: ["job.failed"], jobs: "all", scope: "own", created_at: AT, waiting: 0, given_up: 0 },
    ...changes,
  } as unknown as TargetView;
}

function message(changes: Record<string, unknown> = {}): MessageView {
  return {
    ...{
      id: "msg_1",
      target_id: "ntf_1",
      kind: "test",
      state: "waiting",
      title: "a test",
      text: "",
      attempts: 0,
    },
    ...{ created_at: AT },
    ...changes,
  } as unknown as MessageView;
}

let targets: TargetView[] = [];
let messages: MessageView[] = [];

function serveAll(other: (asked: Asked) => unknown = () => null): readonly Asked[] {
  return serve((asked) => {
    if (asked.method === "GET" && asked.path === "v1/notifications/targets") return { data: targets };
    if (asked.method === "GET" && asked.path === "v1/notifications/messages") return { data: messages };
    return other(asked);
  });
}

beforeEach(() => {
  vi.useFakeTimers();
  signIn("member", "jobs:read", "jobs:write");
  [targets, messages] = [[], []];
});

afterEach(async () => {
  vi.runOnlyPendingTimers();
  await removeAll();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("targets are listed with why they failed", async () => {
  targets = [
    target({ error: "a.example answered 500", failed_at: AT, waiting: 2, given_up: 1 }),
    target({ id: "b" }),
  ];
  serveAll();
  const host = show(Notifications, {});
  await settled();
  const rows = [...host.querySelectorAll("tbody tr")].map((row) => textsOf(row, "td"));
  expect(rows[0]?.slice(0, 4)).toEqual(["alerts", "webhook", "https://a.example/…", "job.failed"]);
  expect(rows[0]?.[4]).toContain("a.example answered 500");
  expect(rows[0]?.slice(5, 7)).toEqual(["2", "1"]);
  expect(rows[1]?.[4]).toBe("nothing was sent yet");
});

test("a target is added, and its secret shown this once", async () => {
  const asked = serveAll(({ method }) => (method === "POST" ? { ...target(), secret: "whsec_abc" } : null));
  const host = show(Notifications, {});
  await settled();
  click(host, "Add a channel");
  expect(document.activeElement).toBe(host.querySelector("form input")); // one types at once
  expect(textsOf(host, "option")).not.toContain("mail");
  const [name, address] = [...host.querySelectorAll<HTMLInputElement>("form input[type=text]")];
  for (const [input, value] of [
    [name, " alerts "],
    [address, "https://a.example/hook"],
  ] as const) {
    if (!input) throw new Error("an input is missing");
    input.value = value;
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }
  host.querySelector("form")?.dispatchEvent(new SubmitEvent("submit", { cancelable: true }));
  await settled();
  expect(asked.find(({ method }) => method === "POST")?.body).toEqual({
    name: "alerts",
    kind: "webhook",
    address: "https://a.example/hook",
    on: ["job.failed", "job.succeeded", "sweep.finished"],
    jobs: "all",
    scope: "own",
  });
  expect(textOf(host)).toContain("whsec_abc");
  click(host, "I have saved it");
  expect(textOf(host)).not.toContain("whsec_abc");
});

test("what is wrong with a new target is said, and the form stays", async () => {
  serveAll();
  const host = show(Notifications, {});
  await settled();
  click(host, "Add a channel");
  host.querySelector("form")?.dispatchEvent(new SubmitEvent("submit", { cancelable: true }));
  await settled();
  expect(textOf(host.querySelector("form [role=alert]"))).toBe("There is none. (request req_1)");
});

test("an administrator may enter mail, and a viewer adds nothing", async () => {
  serveAll();
  signIn("admin", "jobs:read", "jobs:write", "users");
  const admins = show(Notifications, {});
  await settled();
  click(admins, "Add a channel");
  expect(textsOf(admins, "option")).toContain("mail");
  expect(textOf(admins)).toContain("a worker is lost");
  signIn("viewer", "jobs:read");
  const viewers = show(Notifications, {});
  await settled();
  expect(textsOf(viewers, "button")).not.toContain("Add a channel");
});

test.each([
  [{ state: "delivered" }, "delivered"],
  [{ state: "given_up", error: "port 22 is not allowed" }, "not delivered: port 22 is not allowed"],
])("a test says what became of it", async (outcome, says) => {
  targets = [target()];
  messages = [message()];
  const asked = serveAll(({ path }) => (path.endsWith("/ntf_1/test") ? message() : null));
  const host = show(Notifications, {});
  await settled();
  click(host, "Test");
  await settled();
  expect(textOf(host)).toContain("sending…");
  messages = [message(outcome)];
  await vi.advanceTimersByTimeAsync(1_000);
  await settled();
  expect(textOf(host)).toContain(says);
  expect(asked.find(({ method }) => method === "POST")?.path).toBe("v1/notifications/targets/ntf_1/test");
});

test("a target opens its newest messages", async () => {
  targets = [target()];
  messages = [message({ title: "job <b>digits</b> failed", state: "given_up", attempts: 21, error: "gone" })];
  serveAll();
  const host = show(Notifications, {});
  await settled();
  click(host, "alerts");
  await settled();
  const row = host.querySelector("table[aria-label='Messages to alerts'] tbody tr");
  expect(textsOf(row as Element, "td").slice(1)).toEqual([
    "job <b>digits</b> failed",
    "failed",
    "21",
    "gone",
  ]);
});

test("a removal waits, so that it can be taken back", async () => {
  targets = [target()];
  const asked = serveAll(({ method }) => {
    if (method === "DELETE") targets = [];
    return {};
  });
  const host = show(Notifications, {});
  await settled();
  click(host, "Remove");
  await settled();
  expect(host.querySelector("tbody tr")).toBeNull();
  expect(asked.some(({ method }) => method === "DELETE")).toBe(false);
  await vi.advanceTimersByTimeAsync(5_000);
  await settled();
  expect(asked.find(({ method }) => method === "DELETE")?.path).toBe("v1/notifications/targets/ntf_1");
});
