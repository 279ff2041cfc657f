/** The schema of the service itself, for tests: what `GET /v1/spec/schema` answers. */
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import type { Schema } from "./schema";

const PYTHON = join(import.meta.dirname, "../../../.venv/bin/python");
const PROGRAM = `
import json
from torchyard.contract.spec import SPEC
print(json.dumps(SPEC.json_schema(mode="serialization")))
`;

export const schema = JSON.parse(execFileSync(PYTHON, ["-P", "-c", PROGRAM], { encoding: "utf8" })) as Schema;
