/** Items of a job as the service answers them, and a screen that shows all. */
import type { MediaKey, MediaKind, MediaPage, MediaView } from "../api/wire";
import { vi } from "vitest";

export function item(
  key: string,
  kind: MediaKind,
  step: number,
  changes: Partial<MediaView> = {},
): MediaView {
  return {
    ...{
      id: `med_${key.replace("/", "-")}_${step}_${changes.number ?? 0}`,
      key,
      kind,
      step,
      number: 0,
      attempt: 1,
    },
    ...{ caption: null, classes: null, parts: {}, data: null, created_at: "2026-01-01T00:00:00Z" },
    ...changes,
  };
}

export function picture(width = 32, height = 32): MediaView["parts"]["image"] & object {
  return { media_type: "image/png", size: 100, sha256: "x", width, height };
}

/** Answers a request for the items, as the service would. */
export function answered(all: readonly MediaView[], query: URLSearchParams): MediaPage {
  const [key, kind] = [query.get("key"), query.get("kind")];
  const [from, to] = [Number(query.get("from_step") ?? 0), Number(query.get("to_step") ?? Infinity)];
  const found = all.filter(
    (item) =>
      (key ?? item.key) === item.key &&
      (kind ?? item.kind) === item.kind &&
      item.step >= from &&
      item.step <= to,
  );
  const start = Number(query.get("after") ?? 0);
  const end = start + Number(query.get("limit") ?? 100);
  const has_more = end < found.length;
  const keys = query.get("keys") === "false" ? [] : keysOf(all);
  return { data: found.slice(start, end), has_more, next: has_more ? String(end) : null, keys };
}

/** Tells at once that what is watched is in sight. */
export function seeAll(): void {
  vi.stubGlobal(
    "IntersectionObserver",
    class {
      constructor(private readonly tell: (entries: readonly { isIntersecting: boolean }[]) => void) {}
      observe(): void {
        this.tell([{ isIntersecting: true }]);
      }
      disconnect(): void {
        return;
      }
    },
  );
}

function keysOf(all: readonly MediaView[]): readonly MediaKey[] {
  const found = new Map<string, MediaView[]>();
  for (const item of all)
    found.set(`${item.key} ${item.kind}`, [...(found.get(`${item.key} ${item.kind}`) ?? []), item]);
  return [...found.values()].flatMap((items) => {
    const [first] = items;
    if (!first) return [];
    const steps = [...new Set(items.map(({ step }) => step))].sort((a, b) => a - b);
    const numbers = Math.max(...items.map(({ number }) => number)) + 1;
    return [{ key: first.key, kind: first.kind, count: items.length, steps, numbers }];
  });
}
