/** What a chart says in words, for those who do not see it and for what a line cannot show. */
import { number } from "../text/number";
import type { XKind } from "./axis";
import type { Band } from "./crosshair";
import { countText, placeText } from "./labels";
import type { Line } from "./line";
import { partOf } from "./panels";
import type { Measure } from "./range";
import { isMeasured } from "./smoothing";

/** Of more lines, a sentence on each would be too many. */
const MOST_ENDS = 20;

/** Returns what is not drawn as a line, and how many points the rows stand for. */
export function notesOf(measure: Measure): readonly string[] {
  const { rows, points, above, below, nonpositive, nonfinite } = measure;
  const notes = [
    rows < points ? `${countText(rows)} of ${countText(points)} points` : several(points, "point", "points"),
  ];
  if (nonpositive > 0)
    notes.push(
      `${several(nonpositive, "value", "values")} ≤ 0 ${nonpositive === 1 ? "is" : "are"} not shown`,
    );
  if (nonfinite > 0) notes.push(`${countText(nonfinite)} not finite`);
  if (above > 0) notes.push(`${countText(above)} above`);
  if (below > 0) notes.push(`${countText(below)} below`);
  return notes;
}

/** Returns what the bands of groups show: `mean ± standard deviation of 2 to 5 jobs`. */
export function bandNote(lines: readonly Line[], isRange: boolean): string {
  const bands = lines.filter((line) => line.isBand);
  if (bands.length === 0) return "A band needs two jobs with points.";
  if (bands.every(({ columns }) => columns.length === 0))
    return "No two jobs of a group have points at one x value. Choose another x axis, such as steps.";
  const counts = bands.map(({ sources }) => sources.length);
  const [least, most] = [Math.min(...counts), Math.max(...counts)];
  const jobs = least === most ? `${most}` : `${least} to ${most}`;
  const hasRange = isRange || lines.every((line) => !isMeasured(line.key));
  return `mean ${hasRange ? "and range" : "± standard deviation"} of ${jobs} jobs`;
}

/** Returns how far a band reaches at one place: `0.12 … 0.34 · 3 jobs`. */
export function bandText({ min, max, jobs }: Band): string {
  return `${number(min)} … ${number(max)} · ${several(jobs, "job", "jobs")}`;
}

/** Returns which lines are not smoothed though that is asked for; "" where there are none. */
export function tooFewNote(lines: readonly Line[]): string {
  const few = lines.filter((line) => line.hasTooFewPoints());
  if (few.length === 0) return "";
  const note = "too few points to smooth";
  if (few.length === lines.length) return note;
  const names = [...new Set(few.map(({ key, name }) => partOf(key) ?? name))];
  return names.length > 2 ? `${few.length} curves: ${note}` : `${names.join(", ")}: ${note}`;
}

/** Returns one sentence on a chart. */
export function summaryOf(key: string, lines: readonly Line[], measure: Measure, kind: XKind): string {
  if (measure.rows === 0 || measure.lowest > measure.highest)
    return `${key}: no finite values in this range.`;
  if (lines.length > MOST_ENDS)
    return `${key}: lowest ${number(measure.lowest)}, highest ${number(measure.highest)} of ${lines.length} curves.`;
  const ends = lines.map((line) => {
    const last = line.whole.length - 1;
    return `${line.name} ${number(line.last())}${last < 0 ? "" : ` at ${placeText(kind, line.x(last, line.whole))}`}`;
  });
  return `${key}: lowest ${number(measure.lowest)}, highest ${number(measure.highest)}; last: ${ends.join(", ")}.${seamsOf(lines, kind)}`;
}

/** Tells where attempts went on; of many jobs that would be too much. */
function seamsOf(lines: readonly Line[], kind: XKind): string {
  if (new Set(lines.map(({ jobId }) => jobId)).size !== 1) return "";
  const seams = lines[0]?.seams() ?? [];
  return seams.map(({ attempt, x }) => ` Attempt ${attempt} resumed at ${placeText(kind, x)}.`).join("");
}

function several(count: number, one: string, many: string): string {
  return `${countText(count)} ${count === 1 ? one : many}`;
}
