/** What `v1/jobs/{id}/media` answers. */
export type MediaKind = "image" | "overlay" | "histogram" | "table" | "text" | "confusion";
export type PartName = "image" | "truth" | "predicted";

/** A picture of an item; its file is read apart. */
export interface MediaPart {
  readonly media_type: string;
  readonly size: number;
  readonly sha256: string;
  readonly width: number;
  readonly height: number;
}

export interface MediaView {
  readonly id: string;
  readonly key: string;
  readonly kind: MediaKind;
  readonly step: number;
  /** Its place among those of the same key and step. */
  readonly number: number;
  readonly attempt: number;
  readonly caption: string | null;
  readonly classes: readonly string[] | null;
  readonly parts: Readonly<Partial<Record<PartName, MediaPart>>>;
  readonly data: unknown;
  readonly created_at: string;
}

export interface MediaKey {
  readonly key: string;
  readonly kind: MediaKind;
  readonly count: number;
  /** Ascending; thinned evenly where there are very many. */
  readonly steps: readonly number[];
  /** The most items of one step. */
  readonly numbers: number;
}

export interface MediaPage {
  readonly data: readonly MediaView[];
  readonly has_more: boolean;
  readonly next: string | null;
  readonly keys: readonly MediaKey[];
}

/** Returns the API path of a picture of an item. */
export function pathOf(jobId: string, item: MediaView, part: PartName): string {
  return `v1/jobs/${encodeURIComponent(jobId)}/media/${encodeURIComponent(item.id)}/${part}`;
}

/** Returns the name of a class: its number where the job gave none. */
export function className(classes: readonly string[] | null, index: number): string {
  return classes?.[index] ?? `class ${index}`;
}
