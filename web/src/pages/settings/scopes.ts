/** What tokens may be used for, in words. */
import type { TokenView } from "../../api/wire";

export type Scope = TokenView["scopes"][number];

export const SCOPES: Readonly<Record<Scope, string>> = {
  account: "identify the user",
  "jobs:read": "read jobs",
  "jobs:write": "submit and change jobs",
  "jobs:exec": "start programs in running jobs",
  "cluster:read": "see workers and the queue",
  "cluster:write": "drain workers",
  "figures:read": "read the service's figures, for Prometheus",
  secrets: "set and delete secrets",
  tokens: "make and revoke tokens",
  users: "manage users",
  audit: "read the audit",
};

/** Says what a token may: what its scopes and the role of its user both allow. */
export function scopesText(scopes: readonly Scope[]): string {
  if (scopes.length === Object.keys(SCOPES).length) return "everything that the role allows";
  return scopes.filter((scope) => scope !== "account").join(", ") || "only identify the user";
}
