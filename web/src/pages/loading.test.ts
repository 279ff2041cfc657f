import type { Component } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { live } from "../live/live.svelte";
import { eventually, removeAll, serve, settled, show, signIn } from "../testing";
import Artifacts from "./job/Artifacts.svelte";
import Checkpoints from "./job/Checkpoints.svelte";
import Code from "./job/Code.svelte";
import Job from "./job/Job.svelte";
import Media from "./job/Media.svelte";
import Overview from "./job/Overview.svelte";
import { attempt, view } from "./job/testing";
import Timeline from "./job/Timeline.svelte";
import Models from "./models/Models.svelte";
import Now from "./now/Now.svelte";
import Schedules from "./schedules/Schedules.svelte";
import Quotas from "./settings/Quotas.svelte";
import Secrets from "./settings/Secrets.svelte";
import Sessions from "./settings/Sessions.svelte";
import Targets from "./settings/Targets.svelte";
import Tokens from "./settings/Tokens.svelte";
import Usage from "./settings/Usage.svelte";
import Users from "./settings/Users.svelte";
import Sweeps from "./sweeps/Sweeps.svelte";
import Workers from "./workers/Workers.svelte";

beforeEach(() => {
  vi.spyOn(live, "watch").mockReturnValue(() => undefined);
  signIn("admin", "jobs:read", "jobs:write", "cluster:read", "secrets", "tokens", "users");
});

afterEach(async () => {
  await removeAll();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

const job = view();

test.each<[string, Component<Record<string, unknown>>, Record<string, unknown>]>(
  Object.entries({
    ...{ Now, Models, Schedules, Sweeps, Workers, Quotas, Secrets, Sessions, Targets, Tokens, Usage, Users },
    ...{ Job, Artifacts, Checkpoints, Code, Media, Overview, Timeline },
  }).map(([name, shown]) => [
    name,
    shown as Component<Record<string, unknown>>,
    { id: job.id, job, attempts: [attempt(1)] },
  ]),
)("%s shows bars while it is read, and none after a failure", async (_, shown, props) => {
  vi.stubGlobal("fetch", () => new Promise(() => undefined));
  const host = show(shown, props);
  await settled();
  expect(host.querySelector(".skeleton")).not.toBeNull();
  await removeAll();
  signIn("admin", "jobs:read", "jobs:write", "cluster:read", "secrets", "tokens", "users");
  serve(() => null);
  const failed = show(shown, props);
  await settled();
  await eventually(() => expect(failed.querySelector(".skeleton")).toBeNull());
});
