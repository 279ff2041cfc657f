/** What all parts of the form have in common. */
import type { Checks } from "./checks.svelte";
import type { Draft } from "./draft.svelte";
import type { Offered } from "./offered.svelte";

export interface Shared {
  readonly draft: Draft;
  readonly checks: Checks;
  readonly offered: Offered;
  /** What is wrong with each field, by its key. */
  readonly wrong: ReadonlyMap<string, string>;
}
