import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { route } from "../../router.svelte";
import { click, removeAll, settled, signIn, textOf, textsOf } from "../../testing";
import {
  begin,
  end,
  service,
  FITS,
  JOB,
  open,
  yamlOf,
  field,
  panelOf,
  type,
  unfold,
  checked,
} from "./testing";

beforeAll(() => import("./BundleChoices.svelte")); // as a browser has it that opened a panel before
beforeEach(begin);
afterEach(end);

test("a key is found by its name or its help, and Enter goes to it", async () => {
  const { host } = await open();
  type(field(host, "find-key"), "warmup_st");
  expect(textsOf(host, ".row label")).toEqual([
    "lr_scheduler.warmup_steps",
    "distributed.local_sgd.warmup_steps",
    "lr_scheduler.warmup_epochs", // whose help names them
  ]);
  field(host, "find-key").dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  expect(document.activeElement?.id).toBe("field-config.lr_scheduler.warmup_steps");
  type(field(host, "field-config.lr_scheduler.warmup_steps"), "5");
  expect(yamlOf(host).value).toContain("lr_scheduler:\n    warmup_steps: 5\n");
  type(field(host, "find-key"), "nothing like it");
  expect(textOf(host.querySelector(".fields [role=status]"))).toBe("No key matches.");
  type(field(host, "find-key"), "");
  expect(textsOf(host, ".row label")[0]).toBe("name");
});

test("the search of a sweep finds what the form has fields for, also around its job", async () => {
  const { host } = await open();
  type(yamlOf(host), "parameters: {config.optimizer.lr: [0.1]}\njob: {trainer: image-classification}\n");
  type(field(host, "find-key"), "parallel");
  expect(host.querySelector('[id="field-sweep.max_parallel"]')).not.toBeNull();
  for (const key of ["job", "parameters", "halving"]) {
    type(field(host, "find-key"), key);
    expect(host.querySelectorAll(`[id^="field-sweep.${key}"]`)).toHaveLength(0);
  }
  type(field(host, "find-key"), "e");
  const [found = 0, all = 0] = textOf(host.querySelector("[role=status]")).split(" of ").map(parseFloat);
  expect(found).toBeLessThanOrEqual(all);
});

test("a value that varies makes a sweep", async () => {
  service.answer = (asked) => (asked.path === "v1/sweeps" ? { id: "swp_1" } : { spec: {}, points: 2 });
  const { host, asked } = await open();
  const row = field(host, "field-config.optimizer.lr").closest<HTMLElement>(".row");
  if (row) click(row, "vary");
  await settled();
  const values = field(host, "field-config.optimizer.lr") as HTMLInputElement;
  expect([document.activeElement, values.selectionStart, values.selectionEnd]).toEqual([
    ...[values, 0, values.value.length], // typing replaces what it had
  ]);
  type(values, "0.1, 0.01");
  await checked();
  expect(textOf(host.querySelector("footer"))).toBe("2 trials Submit the sweep");
  click(host, "Submit the sweep");
  await settled();
  expect(asked.find(({ path }) => path === "v1/sweeps")?.body).toEqual({
    name: "image-classification",
    parameters: { "config.optimizer.lr": [0.1, 0.01] },
    job: { trainer: "image-classification" },
  });
  expect(route().page).toBe("sweep");
});

test("an argument of a script varies, too", async () => {
  service.answer = () => ({ spec: {}, points: 2 });
  const { host } = await open();
  type(yamlOf(host), "trainer: script\nconfig: {code: 'file:///a'}\n");
  const added = host.querySelector<HTMLInputElement>('[placeholder="args.lr"]');
  if (added) type(added, "args.lr");
  click(host, "Vary an argument");
  type(field(host, "field-args.lr"), "0.1, 0.01");
  expect(yamlOf(host).value).toContain("parameters:\n  args.lr: [0.1, 0.01]\njob:\n  trainer: script\n");
  click(host, "remove");
  expect(yamlOf(host).value).toMatch(/^trainer: script\n/);
});

test("weights are chosen among models and checkpoints of jobs", async () => {
  service.answer = ({ path }) => {
    if (path === "v1/models")
      return {
        data: [
          {
            owner: "ada",
            name: "digits",
            newest: { version: 3, trainer: "script", created_at: "2026-01-01" },
          },
        ],
      };
    if (path === "v1/jobs")
      return { data: [{ id: JOB, name: "old", owner: "ada", state: "succeeded", created_at: "2026-01-01" }] };
    if (path === `v1/jobs/${JOB}/checkpoints`)
      return { data: [{ id: "ckpt_1", step: 40, epoch: 2, aliases: ["epoch-2", "best"], metrics: {} }] };
    return FITS;
  };
  const { host } = await open();
  (await panelOf(host, "field-init_from"))[0]?.click();
  await settled();
  expect(yamlOf(host).value).toContain("init_from: model:ada/digits@3");
  (await panelOf(host, "field-init_from"))[1]?.click();
  await settled();
  host.querySelectorAll<HTMLElement>(".panel li button")[0]?.click();
  await settled();
  expect(yamlOf(host).value).toContain(`init_from: ${JOB}/best`);
});

function bundle(digit: string, changes: Record<string, unknown> = {}): Record<string, unknown> {
  const of = {
    sha256: digit.repeat(64),
    size: 2048,
    files: 3,
    state: "complete",
    received: 2048,
    name: null,
  };
  return { ...of, created_at: "2026-01-01T00:00:00Z", ...changes };
}

test("data and code are chosen among the bundles that are complete, by their names", async () => {
  service.bundles = [bundle("a", { name: "cracks" }), bundle("b"), bundle("c", { state: "partial" })];
  const { host } = await open();
  const id = "field-config.data.source";
  const offered = await panelOf(host, id);
  expect(offered.map((each) => textOf(each).split(/ (?=come|\d)/)[0])).toEqual([
    "digits",
    "cracks",
    "sha256:bbbbbbbb",
  ]);
  expect(textOf(offered[1])).toContain("3 files");
  offered[1]?.click();
  await settled();
  expect(yamlOf(host).value).toContain(`source: bundle:sha256:${"a".repeat(64)}`);
  expect(document.activeElement?.id).toBe(id);
  expect(host.querySelector(".panel")).toBe(null);
  type(yamlOf(host), "trainer: script\n");
  const code = await panelOf(host, "field-config.code");
  expect(code.map((each) => textOf(each).split(" ")[0])).toEqual(["cracks", "sha256:bbbbbbbb"]);
  expect(textsOf(host, ".panel code")).toEqual(["torchyard run train.py", "file:///…"]);
});

test("data is chosen below a folder that workers allow, each once", async () => {
  signIn("member", "jobs:read", "jobs:write", "cluster:read");
  const worker = { id: "wrk_1", name: "box-a", devices: [] };
  const folders = ["/data/wall photos", "/scratch"];
  const workers = [
    { ...worker, starts: { environments: [], folders } },
    { ...worker, starts: { environments: [], folders: ["/scratch"] } },
  ];
  service.answer = ({ path }) => (path === "v1/workers" ? { data: workers } : FITS);
  const { host } = await open();
  const offered = await panelOf(host, "field-config.data.source");
  expect(offered.map(textOf)).toEqual([
    "digits comes with the service",
    "file:///data/wall%20photos",
    "file:///scratch",
  ]);
  expect(textsOf(host, ".panel code")).toEqual(["torchyard data push DIR"]);
  offered[1]?.click();
  await settled();
  expect(yamlOf(host).value).toContain(`source: "file:///data/wall%20photos"`);
});

test("without a bundle the panel says how one is uploaded, and of many one is found by its name", async () => {
  const { host } = await open();
  const id = "field-config.data.source";
  await panelOf(host, id);
  expect(textsOf(host, ".panel p")[0]).toBe("You have no uploads yet.");
  expect(textOf(host.querySelector(".panel code"))).toBe("torchyard data push DIR");
  await removeAll();
  signIn("member", "jobs:read", "jobs:write");
  service.bundles = Array.from({ length: 12 }, (_, at) => bundle(at.toString(16), { name: `set-${at}` }));
  const many = (await open()).host;
  expect(await panelOf(many, id)).toHaveLength(9);
  expect(textOf(many.querySelector(".panel"))).toContain("8 of 12 are shown.");
  type(many.querySelector<HTMLInputElement>(".panel [type=search]") as HTMLInputElement, "set-11");
  await checked();
  expect(textsOf(many, ".panel li button").map((each) => each.split(" ")[0])).toEqual(["digits", "set-11"]);
});

test("a mount of a script is chosen among the bundles, too", async () => {
  service.bundles = [bundle("a", { name: "cracks" })];
  const { host } = await open();
  type(yamlOf(host), "trainer: script\nconfig: {code: 'file:///a', mounts: {./data: ''}}\n");
  unfold(host, "mounts");
  (await panelOf(host, "field-config.mounts../data"))[0]?.click();
  await settled();
  expect(yamlOf(host).value).toContain(`./data: bundle:sha256:${"a".repeat(64)}`);
});
