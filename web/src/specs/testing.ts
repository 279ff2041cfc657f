/** The schemas of the service itself, for tests: what `GET /v1/spec/schema` answers. */
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import type { Schemas } from "./schema";

const PYTHON = join(import.meta.dirname, "../../../.venv/bin/python");
const PROGRAM = `
import json
from torchyard.contract.spec.spec import SPEC
from torchyard.contract.sweeps.spec import SweepSpec
schemas = {"job": SPEC.json_schema(mode="serialization"), "sweep": SweepSpec.model_json_schema(mode="serialization")}
print(json.dumps(schemas))
`;

export const schemas = JSON.parse(
  execFileSync(PYTHON, ["-P", "-c", PROGRAM], { encoding: "utf8" }),
) as Schemas;
export const schema = schemas.job;
