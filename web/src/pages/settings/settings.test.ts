import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { live } from "../../live/live.svelte";
import { href, navigate, route } from "../../router.svelte";
import { session } from "../../shell/session.svelte";
import { pending } from "../../shell/undo.svelte";
import { click, removeAll, serve, settled, show, signIn, textOf, textsOf, type Asked } from "../../testing";
import { limitOf, typed, valueText } from "./resources";
import Settings from "./Settings.svelte";

const AT = "2026-01-01T00:00:00.000Z";
const VIEWER = ["account", "jobs:read", "cluster:read", "tokens"] as const;
const MEMBER = [...VIEWER, "jobs:write", "secrets"] as const;
const ADMIN = [...MEMBER, "cluster:write", "figures:read", "users", "audit"] as const;

/** Shows a section, whose requests are answered by the end of their paths; a list is a page of it. */
async function open(
  section: string,
  answers: Readonly<Record<string, unknown>>,
): Promise<{ host: HTMLElement; asked: readonly Asked[] }> {
  navigate(href("settings", section === "" ? {} : { section }));
  const asked = serve(({ path, method }) => {
    const found = answers[`${method} ${path}`] ?? (method === "GET" ? answers[path] : undefined);
    const answer = typeof found === "function" ? (found as () => unknown)() : found;
    return Array.isArray(answer) ? { data: answer, has_more: false, next: null } : (answer ?? null);
  });
  const host = show(Settings, {});
  await settled();
  return { host, asked };
}

function fill(host: Element, label: string, value: string): void {
  const found = [...host.querySelectorAll("label")].find((each) => textOf(each).startsWith(label));
  const input = found?.querySelector<HTMLInputElement | HTMLSelectElement>("input, select");
  if (!input) throw new Error(`there is no field ${label}`);
  input.value = value;
  input.dispatchEvent(new Event("input", { bubbles: true }));
  input.dispatchEvent(new Event("change", { bubbles: true }));
}

async function send(host: Element, label: string): Promise<void> {
  const form = host.querySelector(`form[aria-label="${label}"]`);
  form?.dispatchEvent(new SubmitEvent("submit", { bubbles: true, cancelable: true }));
  await settled();
}

function token(changes: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    ...{ id: "tok_1", user: "ada", name: "laptop", scopes: ["account", "jobs:read"], created_at: AT },
    ...{ expires_at: "2026-03-01T00:00:00Z", used_at: null, revoked_at: null },
    ...changes,
  };
}

beforeEach(() => {
  vi.useFakeTimers({ now: Date.parse(AT) });
  vi.spyOn(live, "watch").mockReturnValue(() => undefined);
  vi.stubGlobal("scrollTo", () => undefined);
});

afterEach(async () => {
  await vi.runOnlyPendingTimersAsync();
  expect(pending(), "no change waits or has failed").toEqual([]);
  await removeAll();
  navigate(href(""));
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("each role is offered the sections that it may use, and no other", async () => {
  const offered: Record<string, readonly string[]> = {};
  for (const [role, scopes] of [
    ["viewer", VIEWER],
    ["member", MEMBER],
    ["admin", ADMIN],
  ] as const) {
    signIn(role, ...scopes);
    offered[role] = textsOf((await open("audit", { "v1/audit": [] })).host, "nav a");
    await removeAll();
  }
  const viewers = ["Tokens", "Sessions", "Your usage", "Notifications"];
  expect(offered).toEqual({
    viewer: viewers,
    member: [...viewers, "Secrets"],
    admin: [...viewers, "Secrets", "Users", "Quotas", "Audit"],
  });
});

test("a section that one may not use asks for nothing", async () => {
  signIn("member", ...MEMBER);
  const { host, asked } = await open("audit", {});
  expect(textOf(host)).toContain("your role or token lacks its scope");
  expect(asked).toEqual([]);
});

test("a token is made with scopes and an end, and its text is shown once", async () => {
  signIn("viewer", ...VIEWER);
  const { host, asked } = await open("", {
    "v1/tokens": [],
    "POST v1/tokens": { ...token(), token: "ty_1_secret" },
  });
  expect(textOf(host)).toContain("torchyard login");
  click(host, "Create token");
  expect(document.activeElement).toBe(host.querySelector("form input")); // one types at once
  fill(host, "Name", " laptop ");
  fill(host, "Expires after", "7d");
  host.querySelector<HTMLInputElement>("input[value='cluster:read']")?.click();
  await send(host, "Create token");
  expect(asked.at(-2)?.body).toEqual({
    ...{ name: "laptop", lifetime: "7d", user: null },
    scopes: ["account", "jobs:read", "tokens"],
  });
  expect(textOf(host.querySelector(".once code"))).toBe("ty_1_secret");
  click(host, "I have saved it");
  expect(host.textContent).not.toContain("ty_1_secret");
});

test("tokens say what they may and when they end; those that ended are shown when asked for", async () => {
  signIn("viewer", ...VIEWER);
  const ended = token({ id: "tok_2", name: "old", revoked_at: AT });
  const { host, asked } = await open("tokens", {
    "v1/tokens": [token(), ended],
    "DELETE v1/tokens/tok_1": {},
  });
  expect(textsOf(host, "tbody tr").length).toBe(1);
  expect(textsOf(host, "tbody td").slice(0, 5)).toEqual([
    "laptop",
    "jobs:read",
    "just now",
    "never",
    "in 59d",
  ]);
  click(host, "Show 1 that ended");
  expect(textsOf(host, "tbody td.name")).toEqual(["laptop", "old"]);
  host.querySelector<HTMLElement>("[aria-label='Revoke laptop']")?.click();
  await settled();
  expect(textsOf(host, "tbody td.name")).toEqual(["old"]);
  expect(asked.filter(({ method }) => method === "DELETE")).toEqual([]);
  await vi.advanceTimersByTimeAsync(5_000);
  expect(asked.filter(({ method }) => method === "DELETE").map(({ path }) => path)).toEqual([
    "v1/tokens/tok_1",
  ]);
});

test("sessions are marked and ended; this one is signed out", async () => {
  signIn("viewer", ...VIEWER);
  const one = { token_id: "tok_1", created_at: AT, used_at: AT, expires_at: "2026-01-08T00:00:00Z" };
  const { host, asked } = await open("sessions", {
    "v1/tokens": [token()],
    "v1/sessions": [
      { ...one, id: "ses_1", address: "10.0.0.1", current: true },
      { ...one, id: "ses_2", address: "10.0.0.2", current: false, used_at: null },
      { ...one, id: "ses_3", address: "", current: false, token_id: null },
    ],
    "DELETE v1/sessions/ses_2": {},
    "DELETE v1/sessions/ses_3": {},
  });
  expect(textsOf(host, "td.name")).toEqual(["10.0.0.1 this browser", "10.0.0.2", "not known"]);
  expect(textsOf(host, "tbody tr:last-child td")[4]).toBe("the administrator's");
  const signOut = vi.spyOn(session, "signOut").mockResolvedValue();
  click(host, "Sign out");
  expect(signOut).toHaveBeenCalledOnce();
  click(host, "End all 2 others");
  await vi.advanceTimersByTimeAsync(5_000);
  expect(asked.filter(({ method }) => method === "DELETE").map(({ path }) => path)).toEqual([
    "v1/sessions/ses_2",
    "v1/sessions/ses_3",
  ]);
});

test("one's use is shown beside the limits, and what is full stands out", async () => {
  signIn("viewer", ...VIEWER);
  const { host } = await open("usage", {
    "v1/quotas/users/ada": {
      user: "ada",
      uses: [
        { resource: "devices", limit: 2, used: 2 },
        { resource: "stored_bytes", limit: null, used: 2048 },
        { resource: "priority", limit: 10, used: null },
      ],
    },
  });
  const rows = [...host.querySelectorAll("tbody tr")].map((row) => textsOf(row, "th, td").slice(0, 3));
  expect(rows).toEqual([
    ["Devices", "2", "2"],
    ["Stored", "2.0 KiB", "unlimited"],
    ["Priority", "", "10"],
  ]);
  expect(textsOf(host, ".full")).toEqual(["2"]);
});

test("a secret is set and deleted by its name; its value leaves the page with the request", async () => {
  signIn("member", ...MEMBER);
  const { host, asked } = await open("secrets", {
    "v1/secrets": [{ name: "HF_TOKEN", created_at: AT, updated_at: AT }],
    "PUT v1/secrets/KEY": { name: "KEY" },
    "DELETE v1/secrets/HF_TOKEN": {},
  });
  fill(host, "Name", "KEY");
  fill(host, "Value", "s3cret");
  await send(host, "Set a secret");
  expect(asked.find(({ method }) => method === "PUT")?.body).toEqual({ value: "s3cret" });
  expect(host.querySelector<HTMLInputElement>("[type=password]")?.value).toBe("");
  host.querySelector<HTMLElement>("[aria-label='Delete HF_TOKEN']")?.click();
  await vi.advanceTimersByTimeAsync(5_000);
  expect(asked.some(({ method, path }) => method === "DELETE" && path === "v1/secrets/HF_TOKEN")).toBe(true);
});

test("a user is added with a first token, given a role, and disabled with or without the jobs", async () => {
  signIn("admin", ...ADMIN);
  session.me = { ...session.me, name: "root" } as typeof session.me;
  const users = [
    { name: "admin", role: "admin", created_at: AT, disabled_at: null },
    { name: "bob", role: "member", created_at: AT, disabled_at: null },
    { name: "root", role: "admin", created_at: AT, disabled_at: null },
  ];
  const { host, asked } = await open("users", {
    "v1/users": users,
    "POST v1/users": users[1],
    "POST v1/tokens": { ...token({ user: "eve" }), token: "ty_2_first" },
    "PATCH v1/users/bob": users[1],
  });
  expect(textsOf(host, "tbody tr")[0]).toContain("TORCHYARD_TOKEN");
  expect(host.querySelectorAll("select"), "one's own role and the first administrator's stay").toHaveLength(
    1,
  );
  click(host, "Add a user");
  expect(document.activeElement).toBe(host.querySelector("form input")); // one types at once
  fill(host, "Name", "eve");
  await send(host, "Add a user");
  expect(asked.filter(({ method }) => method === "POST").map(({ body }) => body)).toEqual([
    { name: "eve", role: "member" },
    { name: "first", user: "eve" },
  ]);
  expect(textOf(host.querySelector(".once code"))).toBe("ty_2_first");
  host.querySelector<HTMLElement>("[aria-label='Disable bob']")?.click();
  await settled();
  click(host, "Disable and cancel jobs");
  await settled();
  expect(asked.find(({ method }) => method === "PATCH")?.body).toEqual({ disabled: true, jobs: "cancel" });
});

test("of a thousand users a hundred are shown, and any is found by name or role", async () => {
  signIn("admin", ...ADMIN);
  const users = Array.from({ length: 1000 }, (_, number) => ({
    ...{
      name: `user-${number}`,
      role: number === 7 ? "viewer" : "member",
      created_at: AT,
      disabled_at: null,
    },
  }));
  const { host } = await open("users", { "v1/users": users });
  const shown = (text: string): readonly string[] => {
    const field = host.querySelector<HTMLInputElement>("input[type=search]");
    if (field) field.value = text;
    field?.dispatchEvent(new Event("input", { bubbles: true }));
    flushSync();
    return textsOf(host, "td.name");
  };
  expect(host.querySelectorAll("tbody tr")).toHaveLength(100);
  expect(textOf(host)).toContain("100 of 1,000 are shown: search by name.");
  expect(shown("USER-99")).toHaveLength(11);
  expect(shown("viewer")).toEqual(["user-7"]);
  expect(shown("<b>")).toEqual([]);
  expect(textOf(host)).toContain("No user matches.");
});

test("limits are set, lifted and cleared: only what was changed is sent", async () => {
  signIn("admin", ...ADMIN);
  const { host, asked } = await open("quotas", {
    "v1/quotas": [{ kind: "role", name: "member", limits: { devices: 4, queued: 100, stored_bytes: 20e9 } }],
    "v1/users": [{ name: "bob", role: "member" }],
    "PUT v1/quotas/roles/member": {},
    "DELETE v1/quotas/roles/member": {},
  });
  const member = [...host.querySelectorAll("tbody tr")].find((row) => textOf(row).startsWith("member"));
  expect(textsOf(member as Element, "td").slice(0, 3)).toEqual(["4", "", "100"]);
  member?.querySelector("button")?.click();
  await settled();
  fill(host, "Devices", "unlimited");
  fill(host, "Waiting", "");
  fill(host, "Share", "many");
  await send(host, "Limits of member");
  expect(textOf(host.querySelector("[role=alert]"))).toBe("Share: a number.");
  fill(host, "Share", "");
  await send(host, "Limits of member");
  const changes = asked.filter(({ method }) => method !== "GET");
  expect(changes.map(({ method, body, query }) => [method, body, query.getAll("resource")])).toEqual([
    ["PUT", { devices: null }, []],
    ["DELETE", undefined, ["queued"]],
  ]);
  expect(host.querySelector("form")).toBeNull();
});

test("a limit is read as it is written", () => {
  expect(limitOf("stored_bytes", "20 GB")).toBe(20e9);
  expect(typed("stored_bytes", 20e9)).toBe("20 GB");
  expect(limitOf("stored_bytes", typed("stored_bytes", 3 * 2 ** 30))).toBe(3 * 2 ** 30);
  expect(limitOf("priority", "-5")).toBe(-5);
  expect([limitOf("devices", " Unlimited "), limitOf("devices", " ")]).toEqual([null, undefined]);
  expect(() => limitOf("devices", "20 GB")).toThrow("Devices: a number, or unlimited.");
  expect(() => limitOf("share", "unlimited")).toThrow("Share: a number.");
  expect(valueText("running", null)).toBe("unlimited");
});

function entry(id: number, changes: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    ...{ id, time: AT, who: "ada", token_id: "tok_1", address: "10.0.0.1", action: "job.cancel" },
    ...{ object: `job_${"a".repeat(32)} as x`, outcome: "ok", request_id: "req_1" },
    ...changes,
  };
}

test("the audit is searched by the address, and links the objects that have a page", async () => {
  signIn("admin", ...ADMIN);
  navigate(href("settings", { section: "audit", who: "ada", action: "job", from: "2026-01-01T00:00" }));
  const pages = [
    { data: [], has_more: true, next: "9" },
    {
      data: [entry(8), entry(7, { who: "", action: "login", object: "", outcome: "not_authorized" })],
      next: "7",
    },
    { data: [], has_more: false, next: null },
  ];
  const asked = serve(() => pages.shift() ?? null);
  const host = show(Settings, {});
  await settled();
  expect(asked.map(({ query }) => query.get("after"))).toEqual([null, "9"]);
  expect(asked[0]?.query.get("who")).toBe("ada");
  expect(asked[0]?.query.get("from")).toBe(new Date("2026-01-01T00:00").toISOString());
  expect(host.querySelector("td a")?.getAttribute("href")).toBe(`/jobs/job_${"a".repeat(32)}`);
  expect(textsOf(host, "td.failure")).toEqual(["not_authorized"]);
  click(host, "Older");
  await settled();
  expect(textsOf(host, "tbody tr")).toHaveLength(2);
  expect(textsOf(host, "button")).not.toContain("Older");
});

test("another search of the audit is put into the address, and takes the place of the one before", async () => {
  signIn("admin", ...ADMIN);
  const { host, asked } = await open("audit", { "v1/audit": [] });
  expect(textOf(host)).toContain("Nothing matches.");
  fill(host, "Object", "tok_1");
  await send(host, "Search the audit");
  expect(route().query.get("object")).toBe("tok_1");
  expect(route().query.get("section")).toBe("audit");
  expect(asked.at(-1)?.query.get("object")).toBe("tok_1");
  click(host, "Clear");
  await settled();
  expect(asked.at(-1)?.query.get("object")).toBeNull();
});
