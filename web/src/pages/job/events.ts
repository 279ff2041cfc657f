/** What happened to a job, newest first, as sentences. A run of checkpoints is one entry. */
import type { EventView } from "../../api/wire";

export interface Entry {
  /** The position of its oldest event: it stays while the run grows. */
  readonly key: number;
  readonly newest: EventView;
  readonly sentence: string;
  /** The checkpoints of a run, newest first; none of any other event. */
  readonly folded: readonly EventView[];
}

/** So many checkpoints in a row are folded. */
const FOLDS = 3;
/** Progress and media have pages of their own. */
const LEFT_OUT: readonly string[] = ["progress", "media"];

/** Returns the entries of events that come oldest first. */
export function entriesOf(events: readonly EventView[]): readonly Entry[] {
  const runs: EventView[][] = [];
  for (const event of events) {
    if (LEFT_OUT.includes(event.type)) continue;
    const last = runs.at(-1);
    if (event.type === "checkpoint" && last?.[0]?.type === "checkpoint") last.push(event);
    else runs.push([event]);
  }
  const entries = runs.flatMap((run) =>
    run.length < FOLDS ? run.map((event) => entryOf([event])) : [entryOf(run)],
  );
  return entries.reverse();
}

function entryOf(run: readonly EventView[]): Entry {
  const [oldest, newest] = [run[0] as EventView, run.at(-1) as EventView];
  const isOne = run.length === 1;
  return {
    key: oldest.seq,
    newest,
    sentence: isOne ? sentenceOf(newest) : sentenceOfRun(run, oldest, newest),
    folded: isOne ? [] : run.toReversed(),
  };
}

export function sentenceOf({ type, data }: EventView): string {
  const by = typeof data["by"] === "string" ? ` by ${data["by"]}` : "";
  if (type === "state") return moved(data, by);
  if (type === "checkpoint") {
    const epoch = data["epoch"] ?? null;
    const place = `${epoch === null ? "" : `epoch ${text(epoch)}, `}step ${text(data["step"])}`;
    const file = text(data["file"]);
    if (file === "") return `checkpoint: ${place}`;
    // The step of a file that the program wrote by itself is often not known.
    return `checkpoint: ${file}${epoch === null && data["step"] === 0 ? "" : `, ${place}`}`;
  }
  const said = text(data["text"] ?? data["message"] ?? JSON.stringify(data));
  if (by === "") return said;
  const colon = said.indexOf(": ");
  return colon < 0 ? said + by : said.slice(0, colon) + by + said.slice(colon);
}

function moved(data: EventView["data"], by: string): string {
  const reason = data["reason"] as { message?: string } | string | undefined;
  const said = typeof reason === "string" ? reason : (reason?.message ?? "");
  // Who it was is known better than that it was the owner.
  const why = by !== "" && said.endsWith(" by its owner") ? "" : said;
  return `${text(data["from"] ?? "submitted")} → ${text(data["to"])}${by}${why ? `: ${why}` : ""}`;
}

function sentenceOfRun(run: readonly EventView[], oldest: EventView, newest: EventView): string {
  const [first, last] = [oldest.data["epoch"] ?? null, newest.data["epoch"] ?? null];
  if (first !== null && last !== null)
    return `${run.length} checkpoints, epochs ${text(first)} to ${text(last)}`;
  if (run.every((event) => text(event.data["file"]) !== "" && event.data["step"] === 0))
    return `${run.length} checkpoints`;
  return `${run.length} checkpoints, steps ${text(oldest.data["step"])} to ${text(newest.data["step"])}`;
}

function text(value: unknown): string {
  return typeof value === "string" || typeof value === "number" ? String(value) : "";
}
