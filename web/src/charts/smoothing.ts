/** Which curves are smoothed, and by how much. */

/** The points of a curve for which the slider's value is the weight. A longer one is smoothed over more points. */
export const SMOOTH_POINTS = 1000;

const LEAST_POINTS = 50;
const LEAST_WEIGHT = 0.1;

/** What is set and not measured, numbers of ranks, and the use of devices, which the service has averaged. */
const AS_IT_IS =
  /(^|\/)(lr|learning_rate)([-_./].*)?$|(^|\/)(epochs?|global_step|iterations?)$|^((train|val|test|trainer)\/)?steps?$|^wait\/slowest_rank$|^\/devices\//;

/** Says whether an average of this metric means something. */
export function isMeasured(key: string): boolean {
  return !AS_IT_IS.test(key);
}

/** Says whether this many points are enough for an average with this weight to show something else than the points. */
export function isEnough(points: number, weight: number): boolean {
  return points >= LEAST_POINTS && weight >= LEAST_WEIGHT;
}

/** Returns how many points a curve has when the service smooths it more, as it does whenever they have doubled. */
export function nextDoubling(points: number): number {
  return Math.max(64, 2 ** (Math.floor(Math.log2(Math.max(1, points))) + 1));
}
