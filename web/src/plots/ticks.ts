/** Labels of the axes of plots. */
import { evenTicks, logTicks, tickText } from "../charts/labels";
import { shareOf, type PlotValue, type Variable } from "./rows";

export interface Tick {
  readonly share: number;
  readonly text: string;
}

/** Returns about as many labels as asked for, evenly chosen among categories. */
export function ticksOf(variable: Variable, most: number): readonly Tick[] {
  const { categories, few, min, max, isLog } = variable;
  if (categories) {
    const every = Math.max(1, Math.ceil(categories.length / most));
    return categories
      .map((name) => ({ share: shareOf(variable, name) ?? 0, text: cut(name, LONGEST) }))
      .filter((_, i) => i % every === 0);
  }
  if (min === max) return [{ share: 0.5, text: tickText(min) }];
  const places = few ?? (isLog ? thinned(logTicks(min, max), most) : evenTicks(min, max, most));
  const ticks = places.map((place) => ({ share: shareOf(variable, place) ?? 0, text: tickText(place) }));
  return ticks.filter(({ share }, i) => i === 0 || share - (ticks[i - 1]?.share ?? 0) >= APART);
}

/** Labels that lie closer would cover one another. */
const APART = 0.06;
/** The width of one in pixels. */
const LETTER = 7;
const MOST_BELOW = 6;
/** A long text would cover the runs. */
const LONGEST = 24;

/** Formats a value of a variable. */
export function valueText(value: PlotValue): string {
  if (value === null) return "—";
  return typeof value === "number" ? tickText(value) : value;
}

/** Returns a text of at most so many letters. What tells names apart is mostly at their ends. */
export function cut(text: string, most: number): string {
  if (text.length <= most) return text;
  const end = Math.max(1, Math.floor(most / 2));
  return `${text.slice(0, Math.max(0, Math.floor(most) - end - 1))}…${text.slice(-end)}`;
}

/** Returns labels for an axis below a plot, as many as stand beside one another there. */
export function ticksBelow(variable: Variable, width: number): readonly Tick[] {
  const names = (variable.categories ?? []).map((name) => Math.min(LONGEST, name.length));
  const longest = Math.max(1, ...names);
  const most = Math.max(2, Math.min(MOST_BELOW, Math.floor(width / ((longest + 2) * LETTER))));
  const ticks = ticksOf(variable, most);
  const letters = width / Math.max(1, ticks.length) / LETTER - 2;
  return ticks.map(({ share, text }) => ({ share, text: cut(text, letters) }));
}

/** Powers of ten come first. */
function thinned(all: readonly number[], most: number): readonly number[] {
  const powers = all.filter((place) => Number.isInteger(Math.log10(place)));
  const places = powers.length > 1 ? powers : all;
  const every = Math.max(1, Math.ceil(places.length / most));
  return places.filter((_, i) => i % every === 0);
}
