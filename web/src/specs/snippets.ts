/** A job spec, a sweep or a schedule as commands that submit it. */
import { yaml } from "../text/yaml";

export type Snippet = "cli" | "curl" | "python";
export type Sent = "job" | "sweep" | "schedule";

const WAYS = {
  job: { command: "submit", path: "jobs", call: "client.submit" },
  sweep: { command: "sweep", path: "sweeps", call: "client.sweeps.create" },
  schedule: { command: "submit", path: "schedules", call: "client.schedules.create" },
} as const;

/** Returns the commands. `origin` is the service's address. */
export function snippets(spec: unknown, origin: string, sent: Sent = "job"): Record<Snippet, string> {
  const json = JSON.stringify(spec);
  const { command, path, call } = WAYS[sent];
  return {
    cli: `torchyard ${command} - <<'SPEC'\n${yaml(spec)}\nSPEC\n`,
    curl: [
      `curl --fail-with-body '${origin}/v1/${path}'`,
      `  -H "Authorization: Bearer $TORCHYARD_TOKEN" -H 'Content-Type: application/json'`,
      `  --data-binary @- <<'SPEC'\n${json}\nSPEC\n`,
    ].join(" \\\n"),
    python: [
      "import json",
      "import torchyard",
      "",
      `with torchyard.Client("${origin}") as client:  # the token is TORCHYARD_TOKEN, or your login's`,
      `    made = ${call}(json.loads(${JSON.stringify(json)}))`,
      "    print(made.id)",
      "",
    ].join("\n"),
  };
}
