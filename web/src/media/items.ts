/** Where the pictures of an item are, and what its classes are called. */
import type { MediaView } from "../api/wire";

export type PartName = "image" | "truth" | "predicted";

/** Returns the API path of a picture of an item. */
export function pathOf(jobId: string, item: MediaView, part: PartName): string {
  return `v1/jobs/${encodeURIComponent(jobId)}/media/${encodeURIComponent(item.id)}/${part}`;
}

/** Returns the name of a class: its number where the job gave none. */
export function className(classes: readonly string[] | null, index: number): string {
  return classes?.[index] ?? `class ${index}`;
}
