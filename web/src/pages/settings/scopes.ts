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

/** A token has it only if that is asked for. */
export const NAMED: Scope = "jobs:exec";

/** Says what a token may: what its scopes and the role of its user both allow. */
export function scopesText(scopes: readonly Scope[]): string {
  const missing = Object.keys(SCOPES).filter((scope) => !scopes.some((each) => each === scope));
  if (missing.length === 0) return "everything that the role allows";
  if (missing.every((scope) => scope === NAMED)) return `everything that the role allows but ${NAMED}`;
  return scopes.filter((scope) => scope !== "account").join(", ") || "only identify the user";
}
