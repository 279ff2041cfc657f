import { afterEach, expect, test, vi } from "vitest";
import { get } from "../api/client";
import type { MeView } from "../api/wire";
import { may, mayChange, mayKill } from "./rights";
import { session } from "./session.svelte";

afterEach(() => {
  session.me = null;
  session.stage = "starting";
  vi.unstubAllGlobals();
});

function signedIn(role: MeView["role"], ...scopes: MeView["scopes"]): void {
  session.me = { name: "ada", role, scopes, token_id: null };
  session.stage = "in";
}

test("nobody may do anything, and a viewer changes nothing", () => {
  expect([may("jobs:read"), mayChange({ owner: "ada" })]).toEqual([false, false]);
  signedIn("viewer", "jobs:read", "cluster:read");
  expect([may("jobs:read"), may("jobs:write"), mayChange({ owner: "ada" })]).toEqual([true, false, false]);
});

test("members and operators change their own jobs, administrators all; operators kill any", () => {
  for (const role of ["member", "operator"] as const) {
    signedIn(role, "jobs:read", "jobs:write");
    expect([mayChange({ owner: "ada" }), mayChange({ owner: "bob" })]).toEqual([true, false]);
  }
  expect(mayKill({ owner: "bob" })).toBe(true);
  signedIn("member", "jobs:read", "jobs:write");
  expect([mayKill({ owner: "ada" }), mayKill({ owner: "bob" })]).toEqual([true, false]);
  signedIn("admin", "jobs:read", "jobs:write");
  expect([mayChange({ owner: "bob" }), mayKill({ owner: "bob" })]).toEqual([true, true]);
  signedIn("admin", "jobs:read");
  expect(mayChange({ owner: "ada" })).toBe(false);
});

test("what is refused has the page ask again what it may do", async () => {
  signedIn("member", "jobs:read", "jobs:write");
  const answer = (target: string): Response =>
    target.includes("v1/me")
      ? new Response(JSON.stringify({ name: "ada", role: "viewer", scopes: ["jobs:read"], token_id: null }))
      : new Response("{}", { status: 403 });
  vi.stubGlobal("fetch", (target: string) => Promise.resolve(answer(target)));
  await session.begin();
  signedIn("member", "jobs:read", "jobs:write");
  await expect(get("v1/jobs")).rejects.toThrow();
  await expect.poll(() => may("jobs:write")).toBe(false);
  expect(session.stage).toBe("in");
});
