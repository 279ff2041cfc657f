/** Each document in the docs and the examples that is a spec is read here as the command line reads it. */
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";
import { isObject, type JsonObject } from "./json";
import { read } from "./reading";

const ROOT = join(import.meta.dirname, "../../..");
const PYTHON = join(ROOT, ".venv/bin/python");
const PROGRAM = `
import json, re, sys
from pathlib import Path
import yaml
from torchyard.cli.specs import _loader

def written():
    for file in [Path("README.md"), *sorted(Path("docs").rglob("*.md"))]:
        for found in re.finditer(r"^( *)\`\`\`(?:yaml|json)\\n(.*?)^ *\`\`\`", file.read_text(), re.M | re.S):
            yield str(file), re.sub(f"(?m)^{found[1]}", "", found[2])
    for file in sorted(Path("examples").rglob("*.y*ml")):
        yield str(file), file.read_text()

found = []
for file, text in written():
    try:
        documents = list(yaml.load_all(text, Loader=_loader()))
    except yaml.YAMLError:
        continue
    if len(documents) == 1 and isinstance(documents[0], dict) and {"trainer", "job"} & documents[0].keys():
        found.append({"file": file, "text": text, "document": documents[0]})
print(json.dumps(found))
`;

interface Written {
  readonly file: string;
  readonly text: string;
  readonly document: JsonObject;
}

const documents = JSON.parse(
  execFileSync(PYTHON, ["-P", "-c", PROGRAM], { encoding: "utf8", cwd: ROOT }),
) as Written[];

test("there are documents of each kind", () => {
  expect(documents.length).toBeGreaterThan(5);
  expect(documents.some(({ document }) => isObject(document.job))).toBe(true);
});

test.each(documents)("$file: a document loads without loss", ({ text, document }) => {
  expect(read(text).document).toEqual(document);
});
