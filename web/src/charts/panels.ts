/** Which charts there are: what each draws, in which section, in which order. */
import { natural } from "../text/natural";
import { isLoss, rank } from "./groups";
import type { Layout } from "./layout";

/** One chart. Its keys are one metric's name in training, validation and test, or one key. */
export interface Panel {
  readonly id: string;
  /** What the keys have before their name: `train/`; empty where there are several. */
  readonly prefix: string;
  readonly name: string;
  /** In the order in which they are drawn: validation is on top. */
  readonly keys: readonly string[];
  /** Whether the keys could be drawn apart, or together. */
  readonly canSplit: boolean;
  readonly isMonitored: boolean;
}

export interface Section {
  readonly id: string;
  readonly title: string;
  readonly panels: readonly Panel[];
}

/** The section of what is monitored and pinned. No section of keys has its id: none begins with a slash. */
export const TOP = "/top";
/** The section of the job's devices. */
export const DEVICES = "/devices";
/** The section of keys of training, validation and test. */
const SPLIT = "train";
const PARTS = ["train", "training", "test", "dev", "eval", "valid", "validation", "val"];

/** Returns the part of a key that says of which data it is, such as `val`; null where it says none. */
export function partOf(key: string): string | null {
  const first = key.slice(0, Math.max(0, key.indexOf("/")));
  return PARTS.includes(first) ? first : null;
}

/** Returns the sections of these keys in their order, and those of `more`. `filter`: only charts with a key that has this text. */
export function sectionsOf(
  keys: Iterable<string>,
  layout: Layout,
  { filter = "", monitor = null, more = [] }: Options = {},
): readonly Section[] {
  const wanted = filter.trim().toLowerCase();
  const all = panelsOf(keys, layout.split, monitor).filter((panel) =>
    panel.keys.some((key) => key.toLowerCase().includes(wanted)),
  );
  const top = all.filter((panel) => panel.isMonitored || isPinned(layout, panel));
  top.sort((a, b) => Number(b.isMonitored) - Number(a.isMonitored));
  const sections = new Map<string, Panel[]>();
  for (const panel of all) {
    if (top.includes(panel)) continue;
    const id = sectionIdOf(panel);
    sections.set(id, [...(sections.get(id) ?? []), panel]);
  }
  const found = [...sections].map(([id, panels]) => ({ id, title: titleOf(id, panels), panels }));
  const rest = [...found, ...(wanted ? [] : more)].sort((a, b) => byOrder(layout.order, a.id, b.id));
  return top.length === 0 ? rest : [{ id: TOP, title: topTitle(top), panels: top }, ...rest];
}

interface Options {
  readonly filter?: string;
  readonly monitor?: string | null;
  /** Sections of other curves than metrics. */
  readonly more?: readonly Section[];
}

/** Says whether the chart is among those that a list names by any of their keys. */
export function isNamed(list: readonly string[], { keys }: Pick<Panel, "keys">): boolean {
  return keys.some((key) => list.includes(key));
}

/** Says whether the chart takes the whole width: the monitored one does, unless somebody chose otherwise. */
export function isWide({ wide }: { readonly wide: readonly string[] }, panel: Panel): boolean {
  return isNamed(wide, panel) !== panel.isMonitored;
}

/** Returns the list with the chart if it lacked it, else without. It is named by its keys' first: others may come and go. */
export function toggledPanel(list: readonly string[], panel: Pick<Panel, "keys">): readonly string[] {
  if (isNamed(list, panel)) return list.filter((key) => !panel.keys.includes(key));
  return [...list, panel.keys[0] ?? ""];
}

/** Returns the ids of sections with one of them moved by as many places, before or behind. */
export function moved(ids: readonly string[], id: string, by: number): readonly string[] {
  const others = ids.filter((other) => other !== id);
  const place = Math.max(0, Math.min(others.length, ids.indexOf(id) + by));
  return [...others.slice(0, place), id, ...others.slice(place)];
}

function panelsOf(
  keys: Iterable<string>,
  split: readonly string[],
  monitor: string | null,
): readonly Panel[] {
  const bases = new Map<string, string[]>();
  for (const key of new Set(keys)) {
    const id = partOf(key) === null ? key : `/${baseOf(key)}`; // no key without a part begins with a slash and has one
    bases.set(id, [...(bases.get(id) ?? []), key]);
  }
  return [...bases]
    .flatMap(([id, members]) => {
      const ordered = members.sort((a, b) => drawnAt(a) - drawnAt(b));
      const canSplit = ordered.length > 1;
      const isApart = canSplit && ordered.some((key) => split.includes(key));
      const isOf = (group: readonly string[]): boolean =>
        monitor !== null && (isApart ? group.includes(monitor) : id === idOf(monitor));
      return (isApart ? ordered.map((key) => [key]) : [ordered]).map((group) => ({
        id: isApart ? (group[0] ?? "") : id,
        ...namesOf(group),
        keys: group,
        canSplit,
        isMonitored: isOf(group),
      }));
    })
    .sort(
      (a, b) =>
        Number(isLoss(b.name)) - Number(isLoss(a.name)) ||
        natural(a.name, b.name) ||
        drawnAt(b.keys[0] ?? "") - drawnAt(a.keys[0] ?? "") ||
        natural(a.id, b.id),
    );
}

function idOf(key: string): string {
  return partOf(key) === null ? key : `/${baseOf(key)}`;
}

function baseOf(key: string): string {
  return key.slice(key.indexOf("/") + 1);
}

function namesOf(keys: readonly string[]): { prefix: string; name: string } {
  const [first = ""] = keys;
  const slash = first.indexOf("/") + 1;
  return { prefix: keys.length > 1 ? "" : first.slice(0, slash), name: first.slice(slash) };
}

function drawnAt(key: string): number {
  return PARTS.indexOf(partOf(key) ?? "");
}

function sectionIdOf({ keys: [key = ""] }: Panel): string {
  if (partOf(key) !== null) return SPLIT;
  return key.indexOf("/") > 0 ? key.slice(0, key.indexOf("/")) : "other";
}

function titleOf(id: string, panels: readonly Panel[]): string {
  if (id !== SPLIT) return id;
  const parts = new Set(panels.flatMap(({ keys }) => keys).map(partOf));
  return ["train", "training", "val", "valid", "validation", "eval", "dev", "test"]
    .filter((part) => parts.has(part))
    .join(" · ");
}

function topTitle(panels: readonly Panel[]): string {
  const monitored = panels.some((panel) => panel.isMonitored);
  const pinned = panels.some((panel) => !panel.isMonitored);
  return [monitored ? "Monitored metric" : "", pinned ? "Pinned" : ""].filter(Boolean).join(" · ");
}

function isPinned(layout: Layout, panel: Panel): boolean {
  return isNamed(layout.pinned, panel);
}

/** Those that were put in an order are before those that are new since. */
function byOrder(order: readonly string[], a: string, b: string): number {
  const [one, other] = [order.indexOf(a), order.indexOf(b)];
  if (one >= 0 && other >= 0) return one - other;
  if (one >= 0 || other >= 0) return one >= 0 ? -1 : 1;
  return Number(a === DEVICES) - Number(b === DEVICES) || rank(a) - rank(b) || natural(a, b);
}
