/** Changes of one job from its row. Each throws ApiError, and its message says what was refused. */
import { ApiError, post } from "../../api/client";
import type { ActionsView } from "../../api/wire";

export function star(id: string, isStarred: boolean): Promise<void> {
  return post(`v1/jobs/${encodeURIComponent(id)}/star`, undefined, isStarred ? "PUT" : "DELETE");
}

/** Sets labels; null removes one. The other labels stay, whatever somebody else does meanwhile. */
export async function label(id: string, labels: Readonly<Record<string, string | null>>): Promise<void> {
  const answer = await post<ActionsView>("v1/jobs/actions", { action: "label", ids: [id], labels });
  const [refused] = answer.refused;
  if (refused) throw new ApiError(409, refused.code, refused.message);
  if (answer.matched === 0) throw new ApiError(404, "not_found", "The job was deleted, or is not yours.");
}

/** Writes labels as `key=value, key=value`. */
export function labelsText(labels: Readonly<Record<string, string>>): string {
  return Object.keys(labels)
    .sort()
    .map((key) => (labels[key] ? `${key}=${labels[key]}` : key))
    .join(", ");
}

/** Returns what has changed from `labels` in a text of `labelsText`; null where nothing has. */
export function labelChanges(
  labels: Readonly<Record<string, string>>,
  text: string,
): Readonly<Record<string, string | null>> | null {
  const wanted = new Map<string, string>();
  for (const part of text.split(",").map((item) => item.trim())) {
    if (part === "") continue;
    const [key = "", ...value] = part.split("=");
    wanted.set(key.trim(), value.join("=").trim());
  }
  const changes: Record<string, string | null> = {};
  for (const key of Object.keys(labels)) if (!wanted.has(key)) changes[key] = null;
  for (const [key, value] of wanted) if (labels[key] !== value) changes[key] = value;
  return Object.keys(changes).length > 0 ? changes : null;
}
