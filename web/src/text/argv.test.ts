import { expect, test } from "vitest";
import { argvText } from "./argv";

const script = (config: object) => argvText({ trainer: "script", config });

test("a script is shown as it is typed", () => {
  expect(script({ entrypoint: "train.py", args: ["--lr", "1e-3", "--name=a b", "it's", ""] })).toBe(
    `train.py --lr 1e-3 '--name=a b' 'it'"'"'s' ''`,
  );
  expect(script({ module: "pkg.train", args: ["--no-augment"] })).toBe("-m pkg.train --no-augment");
  expect(script({ command: "accelerate", args: ["launch", "train.py"] })).toBe("accelerate launch train.py");
});

test("a recipe has no arguments", () => {
  expect(argvText({ trainer: "segmentation", config: {} })).toBeNull();
});
