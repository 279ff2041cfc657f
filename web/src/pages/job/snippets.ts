/** The job's spec as commands to submit it again. */
import type { JobView } from "../../api/wire";
import { yaml } from "../../text/yaml";

export type Snippet = "cli" | "curl" | "python";

/** Returns the commands. `origin` is the service's address. */
export function snippets(job: JobView, origin: string): Record<Snippet, string> {
  const spec = JSON.stringify(job.spec);
  return {
    cli: `torchyard submit - <<'SPEC'\n${yaml(job.spec)}\nSPEC\n`,
    curl: [
      `curl --fail-with-body '${origin}/v1/jobs'`,
      `  -H "Authorization: Bearer $TORCHYARD_TOKEN" -H 'Content-Type: application/json'`,
      `  --data-binary @- <<'SPEC'\n${spec}\nSPEC\n`,
    ].join(" \\\n"),
    python: [
      "import json",
      "import torchyard",
      "",
      `with torchyard.Client("${origin}") as client:  # the token is TORCHYARD_TOKEN, or your login's`,
      `    job = client.submit(json.loads(${JSON.stringify(spec)}))`,
      "    print(job.id)",
      "",
    ].join("\n"),
  };
}
