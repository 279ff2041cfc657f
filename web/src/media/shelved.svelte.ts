/** Follows the items of a key at the step that is wanted. Those before stay until they are read. */
import type { MediaKey } from "../api/wire";
import { untrack } from "svelte";
import type { MediaStore, Shelf } from "./store.svelte";

export interface Wanted {
  readonly store: MediaStore;
  readonly entry: MediaKey;
  readonly step: number;
}

/** A slider passes over steps that nobody looks at. */
const REST_MS = 60;

/** Call it while a component is made. Null is wanted while nobody looks. */
export function shelved(wanted: () => Wanted | null): { readonly shelf: Shelf | null } {
  let shelf = $state.raw<Shelf | null>(null);

  $effect(() => {
    const now = wanted();
    if (now === null) return undefined;
    void now.store.version;
    const next = untrack(() => now.store.shelf(now.entry, now.step));
    if (next.isRead) {
      shelf = next;
      return undefined;
    }
    let isWanted = true;
    const timer = setTimeout(
      () =>
        void next.begin().then(() => {
          if (isWanted) shelf = next;
        }),
      untrack(() => shelf) === null ? 0 : REST_MS,
    );
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  });

  return {
    get shelf() {
      return shelf;
    },
  };
}
