import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { schemas } from "../specs/testing";
import { removeAll, serve, settled, show, signIn, textOf, textsOf } from "../testing";
import Compare from "./compare/Compare.svelte";
import Jobs from "./jobs/Jobs.svelte";
import Models from "./models/Models.svelte";
import Now from "./now/Now.svelte";
import Schedules from "./schedules/Schedules.svelte";
import Secrets from "./settings/Secrets.svelte";
import Targets from "./settings/Targets.svelte";
import Tokens from "./settings/Tokens.svelte";
import Users from "./settings/Users.svelte";
import Sweeps from "./sweeps/Sweeps.svelte";
import Workers from "./workers/Workers.svelte";

const EXAMPLE = "Run the digits example";
const COMMANDS = ["torchyard run train.py", "torchyard submit job.yaml"];

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("scrollTo", () => undefined);
  serve(({ path, query }) => {
    if (path === "v1/spec/schema") return query.get("of") === "sweep" ? schemas.sweep : schemas.job;
    return { data: [], has_more: false, next: null, total: 0, counts: {}, parameters: [], metrics: [] };
  });
  signIn("admin", "jobs:read", "jobs:write", "cluster:read", "secrets", "tokens", "users");
});

afterEach(async () => {
  await removeAll();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test.each([
  ["Now", Now, [EXAMPLE, "New job"], ["torchyard up", ...COMMANDS]],
  ["Jobs", Jobs, [EXAMPLE, "New job"], COMMANDS],
  ["Compare", Compare, ["Select jobs"], ["torchyard compare JOB JOB"]],
  ["Sweeps", Sweeps, ["New sweep"], [expect.stringContaining("--sweep lr="), "torchyard submit sweep.yaml"]],
  ["Models", Models, ["Show succeeded jobs"], ["torchyard models add NAME JOB/best"]],
  ["Schedules", Schedules, ["New schedule"], ["schedule: '0 3 * * *'", "torchyard submit job.yaml"]],
  ["Workers", Workers, [], ["torchyard up", "torchyard run train.py"]],
  ["Tokens", Tokens, ["Create token"], [`torchyard login ${location.origin}`]],
  ["Secrets", Secrets, ["Set"], ["env: {WANDB_API_KEY: {secret: WANDB_API_KEY}}"]],
  ["Targets", Targets, ["Add a channel"], []],
  ["Users", Users, ["Add a user"], []],
])(
  "%s without anything offers what fills it, and commands that are copied",
  async (_, page, actions, commands) => {
    const copied = vi.fn((text: string) => Promise.resolve(void text));
    vi.stubGlobal("navigator", { ...navigator, clipboard: { writeText: copied } });
    const host = show(page, {});
    await vi.advanceTimersByTimeAsync(1_000);
    await settled();
    expect(textsOf(host, "button, a")).toEqual(expect.arrayContaining(actions));
    const buttons = [...host.querySelectorAll<HTMLButtonElement>(".command button")];
    for (const button of buttons) button.click();
    await settled();
    expect(copied.mock.calls.map(([text]) => text)).toEqual(commands);
    expect(textsOf(host, ".command [role=status]")).toEqual(buttons.map(() => "copied"));
  },
);

test("who may only look is offered nothing that would be refused", async () => {
  signIn("viewer", "jobs:read", "cluster:read");
  for (const page of [Now, Jobs, Sweeps, Schedules]) {
    const host = show(page, {});
    await vi.advanceTimersByTimeAsync(1_000);
    await settled();
    expect(textOf(host)).not.toMatch(/Run the digits|New (job|sweep|schedule)|torchyard (run|submit)/);
    await removeAll();
    signIn("viewer", "jobs:read", "cluster:read");
  }
});
