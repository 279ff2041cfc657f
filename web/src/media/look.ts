/** How overlays are drawn: the same for all that are shown together. */
import type { Mode } from "./masks";

export interface Look {
  readonly mode: Mode;
  /** The only class that is drawn; null for all. */
  readonly focus: number | null;
  /** 0 … 1. */
  readonly opacity: number;
}

export const LOOK: Look = { mode: "errors", focus: null, opacity: 0.6 };

export const MODES: Readonly<Record<Mode, string>> = {
  errors: "Right and wrong",
  truth: "True mask",
  predicted: "Predicted mask",
};
