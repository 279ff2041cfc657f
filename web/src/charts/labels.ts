/** Places and values as axes and readouts show them. */
import { duration } from "../text/duration";
import type { XKind } from "./axis";

const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });
/** Seconds between places on an axis of time, from a millisecond to ten years. */
export const TIME_STEPS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
  3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600, 2_419_200, 7_257_600, 31_536_000,
  157_680_000, 315_360_000,
];

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** Returns a label of the y axis: short, without needless zeros. */
export function tickText(value: number): string {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return minus(trimmed(value.toExponential(2)));
  if (size >= 10_000) return minus(compact(value));
  return minus(String(Number(value.toPrecision(6))));
}

/** Returns round places on a logarithmic axis: few over many decades, and evenly spaced ones within less than one. */
export function logTicks(min: number, max: number): number[] {
  const decades = Math.log10(max / min);
  const rounds = decades > 3 ? [1] : [1, 2, 5];
  const every = Math.ceil(decades / 6);
  const found: number[] = [];
  for (let power = Math.floor(Math.log10(min)); power <= Math.log10(max); power++)
    for (const round of rounds) if (power % every === 0) found.push(Number(`${round}e${power}`));
  const within = found.filter((place) => place >= min && place <= max);
  return within.length >= 3 ? within : evenTicks(min, max, 4);
}

/** Returns at most as many round places as asked for, and one more. */
export function evenTicks(min: number, max: number, most: number): number[] {
  const rough = (max - min) / Math.max(1, most);
  const step = roundSteps(rough).find((round) => round >= rough) ?? rough;
  const first = Math.ceil(min / step - 1e-9); // of great numbers so large that adding one changes nothing
  const found: number[] = [];
  for (let i = 0; i <= most && (first + i) * step <= max + step * 1e-9; i++)
    found.push(Number(((first + i) * step).toPrecision(12)));
  return found;
}

/** Returns round distances of about this size, in their order: the last is greater. */
export function roundSteps(rough: number): number[] {
  const power = Math.floor(Math.log10(rough));
  return [1, 2, 2.5, 5, 10, 20].map((round) => Number(`${round}e${power}`));
}

/** Returns places at round local times, in seconds since the epoch. */
export function clockTicks(min: number, max: number, step: number): number[] {
  const zone = new Date(min * 1000).getTimezoneOffset() * 60;
  const first = Math.ceil((min - zone) / step);
  const found: number[] = [];
  for (let i = first; i * step + zone <= max; i++) found.push(i * step + zone);
  return found;
}

/** Returns a count such as `1,500`. */
export function countText(value: number): string {
  return WHOLE.format(value);
}

/** Returns labels for places on the x axis that lie `step` apart. */
export function placeTicks(kind: XKind, places: readonly number[], step: number): string[] {
  if (kind === "wall") return places.map((place, i) => wallTick(place, step, places[i - 1]));
  if (kind === "trained")
    return places.map((place) => (step < 1 ? `${place.toFixed(digitsOf(step))}s` : duration(place)));
  if (kind === "epoch") return places.map((place) => String(Number(place.toPrecision(6))));
  const isLong = places.some((place) => place >= 10_000);
  return places.map((place) => (isLong ? compact(place) : WHOLE.format(place)));
}

/** Returns one place on the x axis in words, such as `step 1,710`. */
export function placeText(kind: XKind, place: number): string {
  if (kind === "wall") return `${dayText(place)} ${clockText(place)}`;
  if (kind === "trained") return `${duration(place)} trained`;
  return kind === "epoch" ? `epoch ${place.toFixed(2)}` : `step ${countText(place)}`;
}

/** Returns the time of day of seconds since the epoch. */
export function clockText(time: number): string {
  return new Date(Math.round(time * 1000)).toLocaleTimeString("en-GB");
}

function dayText(time: number): string {
  return new Date(time * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}

function wallTick(place: number, step: number, before: number | undefined): string {
  if (step >= 86_400) return dayText(place);
  const clock = step >= 60 ? clockText(place).slice(0, 5) : clockText(place) + fractionText(place, step);
  const isNewDay = before !== undefined && dayText(before) !== dayText(place);
  return isNewDay ? dayText(place) : clock;
}

/** Returns `.25` of a second, as far as places that lie `step` seconds apart need it. */
function fractionText(place: number, step: number): string {
  if (step >= 1) return "";
  const thousandths = `${Math.round(place * 1000) % 1000}`.padStart(3, "0");
  return `.${thousandths.slice(0, digitsOf(step))}`;
}

/** Returns how many decimals places that lie `step` seconds apart need. */
function digitsOf(step: number): number {
  return step >= 1 ? 0 : Math.ceil(-Math.log10(step));
}

function trimmed(text: string): string {
  return text.replace(/\.?0+e/, "e").replace("e+", "e");
}

function minus(text: string): string {
  return text.replaceAll("-", "−");
}

function compact(value: number): string {
  return COMPACT.format(value).replace("K", "k");
}
