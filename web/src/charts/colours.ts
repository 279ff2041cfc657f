/** Which colour a job has: the same on every page, with dashes where more than eight are shown. */
export interface Colour {
  /** 1 … 8: the token `--series-N`. */
  readonly slot: number;
  /** Lengths of dash and gap; empty for a solid line. */
  readonly dash: readonly number[];
  /** Of what is beside the main curve of its job. */
  readonly isPale?: boolean;
}

const SLOTS = 8;
const DASHES: readonly (readonly number[])[] = [
  ...[[], [6, 3], [2, 3], [8, 3, 2, 3]],
  // Of more than 32, as many as are compared.
  ...[
    [12, 3],
    [1, 2],
    [8, 3, 2, 3, 2, 3],
  ],
];

/** Returns a job's colour. Among jobs that are shown together no two look alike, and the older job keeps its own. */
export function colourOf(jobId: string, shown: readonly string[] = [jobId]): Colour {
  return coloursOf([...shown, jobId]).get(jobId) ?? { slot: 1, dash: [] };
}

/** Returns the colours of all jobs that are shown together. */
export function coloursOf(shown: readonly string[]): ReadonlyMap<string, Colour> {
  const taken = new Set<number>();
  return new Map(
    [...new Set(shown)].sort().map((id) => {
      const place = firstFree(hash(id) % SLOTS, taken);
      taken.add(place);
      const dash = DASHES[Math.floor(place / SLOTS) % DASHES.length] ?? [];
      return [id, { slot: (place % SLOTS) + 1, dash }];
    }),
  );
}

/** Returns how the curve of a part of the data, such as `val`, is drawn beside others of the same job. */
export function colourOfPart(colour: Colour, part: string | null): Colour {
  if (part?.startsWith("train")) return { ...colour, dash: [8, 3], isPale: true };
  return part === "test" ? { ...colour, dash: [2, 2] } : colour;
}

/** Goes round the eight slots, then round them again with the next dash. */
function firstFree(wanted: number, taken: ReadonlySet<number>): number {
  for (let round = 0; ; round++)
    for (let i = 0; i < SLOTS; i++) {
      const place = ((wanted + i) % SLOTS) + round * SLOTS;
      if (!taken.has(place)) return place;
    }
}

/** FNV-1a. */
function hash(text: string): number {
  let found = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) found = Math.imul(found ^ text.charCodeAt(i), 0x01000193) >>> 0;
  return found;
}
