/** Actions on many jobs: those that are selected, or all that match a filter. */
import { post } from "../../api/client";
import type { Action, ActionsView } from "../../api/wire";
import { priceOfJobs, type Price } from "../../shell/price.svelte";
import { undoable } from "../../shell/undo.svelte";
import { bodyOf } from "../../runs/filters";
import type { Filter } from "./filter";

/** Labels to set; null removes one. */
export type Labels = Readonly<Record<string, string | null>>;
export type Chosen = { readonly ids: readonly string[] } | { readonly filter: Filter };

const DOES = { cancel: "Cancelling", delete: "Deleting" } as const;
const DID: Record<Action, string> = {
  cancel: "Cancelled",
  pause: "Paused",
  resume: "Resumed",
  delete: "Deleted",
  archive: "Archived",
  unarchive: "Unarchived",
  label: "Labelled",
  star: "Starred",
  unstar: "Removed your stars from",
};

/**
 * Sets labels of all that are chosen. Answers in a sentence.
 *
 * Throws ApiError.
 */
export async function labelAll(chosen: Chosen, labels: Labels): Promise<string> {
  return toSentence("label", await send("label", chosen, false, labels));
}

/** Returns what the action would cost; null of one that stops nothing. */
export function priceOf(action: Action, chosen: Chosen): Price | null {
  return action === "cancel" || action === "pause" ? priceOfJobs(action, whoOf(chosen)) : null;
}

/**
 * Does it, a cancel or a delete only after the time for undo, with what it costs. Answers in a sentence.
 *
 * Throws ApiError.
 */
export async function act(action: Action, chosen: Chosen, price: Price | null = null): Promise<string> {
  if (action !== "cancel" && action !== "delete")
    return toSentence(action, await send(action, chosen, false));
  const matched = "ids" in chosen ? chosen.ids.length : (await request(action, chosen, true, false)).matched;
  if (matched === 0) return `No job to ${action}.`;
  let answer: ActionsView | null = null;
  price?.ask();
  const run = async (keepalive: boolean): Promise<void> => {
    answer = await send(action, chosen, keepalive);
  };
  const outcome = await undoable(`${DOES[action]} ${jobs(matched)}.`, run, () => price?.text ?? null);
  if (outcome === "undone") return `${jobs(matched)} left as ${matched === 1 ? "it is" : "they are"}.`;
  return answer ? toSentence(action, answer) : "";
}

async function send(
  action: Action,
  chosen: Chosen,
  keepalive: boolean,
  labels?: Labels,
): Promise<ActionsView> {
  let whole = await request(action, chosen, false, keepalive, labels);
  for (let last = whole; last.more && last.done > 0 && !keepalive;) {
    last = await request(action, chosen, false, false, labels);
    whole = {
      matched: whole.matched + last.matched,
      done: whole.done + last.done,
      refused: [...whole.refused, ...last.refused],
      more: last.more,
    };
  }
  return whole;
}

function request(
  action: Action,
  chosen: Chosen,
  dryRun: boolean,
  keepalive: boolean,
  labels?: Labels,
): Promise<ActionsView> {
  const body = { action, ...whoOf(chosen), dry_run: dryRun, ...(labels && { labels }) };
  return post<ActionsView>("v1/jobs/actions", body, "POST", keepalive);
}

function whoOf(chosen: Chosen): { readonly ids: readonly string[] } | { readonly filter: unknown } {
  return "ids" in chosen ? chosen : { filter: bodyOf(chosen.filter.conditions) };
}

function toSentence(action: Action, answer: ActionsView): string {
  const done = `${DID[action]} ${jobs(answer.done)}.`;
  const [first] = answer.refused;
  return first ? `${done} ${answer.refused.length} refused: ${first.message}.` : done;
}

function jobs(count: number): string {
  return `${count.toLocaleString("en")} ${count === 1 ? "job" : "jobs"}`;
}
