import { expect, test } from "vitest";
import { attemptText, nodesOf, placeText, rangeText } from "./devices";

function held(node: number, index: number | null, host: string | null = null) {
  return { node, index, host };
}

const CASES = [
  ["box-a:0,1", "box-a", [held(0, 0), held(0, 1)]],
  ["box-a", "box-a", [held(0, null)]],
  ["gpu", "gpu", []],
  ["gpu: n7:0,1", "gpu", [held(0, 0, "n7"), held(0, 1, "n7")]],
  ["gpu: n1:0,1 n2:4", "gpu", [held(0, 0, "n1"), held(0, 1, "n1"), held(1, 4, "n2")]],
  ["gpu: 2 nodes", "gpu", [held(0, null), held(1, null)]],
  ["gpu: 4 nodes", "gpu", [0, 1, 2, 3].map((node) => held(node, 0, `n${node}`))],
] as const;

test("devices are named by their worker, and in a pool by their nodes", () => {
  expect(CASES.map(([, worker, devices]) => placeText(worker, devices))).toEqual(CASES.map(([text]) => text));
});

test("the newest attempt has its hosts from the job, an earlier one only the number of its nodes", () => {
  const devices = [held(0, null), held(1, null)];
  const job = { attempt: 2, devices: [held(0, 3, "n1"), held(1, 3, "n4")] };
  const texts = [1, 2].map((number) => attemptText({ number, worker: "gpu", devices }, job));
  expect(texts).toEqual(["gpu: 2 nodes", "gpu: n1:3 n4:3"]);
});

test("ranks are counted over all nodes, and a node has its host's name once that is known", () => {
  const request = { nodes: 2, devices_per_node: 2 };
  expect(nodesOf(request, [])).toEqual([
    { node: 0, name: "node 0", ranks: [0, 1] },
    { node: 1, name: "node 1", ranks: [2, 3] },
  ]);
  expect([rangeText([2, 3]), rangeText([2])]).toEqual(["2–3", "2"]);
  const devices = [held(0, 0, "n5"), held(0, 1, "n5"), held(1, 0, "n2"), held(1, 1, "n2")];
  expect(nodesOf(request, devices).map(({ name }) => name)).toEqual(["n5", "n2"]);
});
