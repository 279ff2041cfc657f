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
/** A long text would cover the runs. */
const LONGEST = 24;

/** Formats a value of a variable. */
export function valueText(value: PlotValue): string {
  if (value === null) return "—";
  return typeof value === "number" ? tickText(value) : value;
}

/** Returns a text of at most so many letters. */
export function cut(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, Math.max(1, most - 1))}…` : text;
}

/** Powers of ten come first. */
function thinned(all: readonly number[], most: number): readonly number[] {
  const powers = all.filter((place) => Number.isInteger(Math.log10(place)));
  const places = powers.length > 1 ? powers : all;
  const every = Math.max(1, Math.ceil(places.length / most));
  return places.filter((_, i) => i % every === 0);
}
