import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { get } from "../api/client";
import { forget, keep, kept } from "../api/secret";
import { session } from "./session.svelte";

interface Asked {
  readonly path: string;
  readonly secret: string | null;
}

const asked: Asked[] = [];
let signedIn: string | null = null;

/** A service that knows one session of `signedIn`, with the secret "one", and a code of mallory's. */
function answer(target: string, init: RequestInit): Response {
  const path = `${init.method} ${new URL(target).pathname}`;
  const secret = new Headers(init.headers).get("x-csrf-token");
  asked.push({ path, secret });
  if (path === "POST /v1/session/codes/check") return json({ name: "mallory", role: "member" });
  if (path === "POST /v1/session") return json({ name: "mallory", role: "member", scopes: [], csrf: "two" });
  if (signedIn === null || secret !== "one") return json({ code: "session_ended", detail: "" }, 401);
  return json({ name: signedIn, role: "admin", scopes: [] });
}

function json(body: unknown, status = 200): Response {
  return new Response(JSON.stringify(body), { status });
}

beforeEach(() => {
  asked.length = 0;
  signedIn = null;
  vi.stubGlobal(
    "fetch",
    vi.fn((target: string, init: RequestInit) => Promise.resolve(answer(target, init))),
  );
});

afterEach(() => {
  forget();
  localStorage.clear();
  location.hash = "";
  vi.unstubAllGlobals();
});

test("a link's code is not spent before its account is accepted", async () => {
  location.hash = "#code=abc";
  await session.begin();
  expect([session.stage, session.offer?.owner.name, session.offer?.me]).toEqual(["offered", "mallory", null]);
  expect(asked.map(({ path }) => path)).toEqual(["POST /v1/session/codes/check"]);
  session.decline();
  expect([session.stage, kept()]).toEqual(["out", null]);
});

test("a browser without a session is shown the login, and nothing is asked that must be refused", async () => {
  await session.begin();
  expect([session.stage, session.notice, asked]).toEqual(["out", null, []]);
});

test("who is signed in stays so, unless the link's account is accepted", async () => {
  signedIn = "alice";
  keep("one");
  location.hash = "#code=abc";
  await session.begin();
  expect([session.stage, session.offer?.me?.name]).toEqual(["offered", "alice"]);
  session.decline();
  expect([session.stage, session.me?.name, kept()]).toEqual(["in", "alice", "one"]);

  location.hash = "#code=abc";
  await session.begin();
  await session.accept();
  expect([session.stage, session.me?.name, kept()]).toEqual(["in", "mallory", "two"]);
  expect(JSON.stringify(session.me)).not.toContain("two");
});

test("a link of the account that is signed in asks nothing and is not needed", async () => {
  signedIn = "mallory";
  keep("one");
  location.hash = "#code=abc";
  await session.begin();
  expect([session.stage, session.me?.name]).toEqual(["in", "mallory"]);
  expect(asked.map(({ path }) => path)).not.toContain("POST /v1/session");
});

test("every request sends the secret, reads too", async () => {
  signedIn = "alice";
  keep("one");
  await session.begin();
  await get("v1/jobs");
  expect(asked.map(({ secret }) => secret)).toEqual(["one", "one"]);
});

test("a browser whose session has ended asks to sign in again", async () => {
  keep("old");
  await session.begin();
  expect([session.stage, kept()]).toEqual(["out", null]);
  expect(session.notice).toContain("Sign in again");
});
