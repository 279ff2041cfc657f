/** Why a change of the settings was refused, in one sentence. */
import { failureOf } from "../../api/client";

/** Returns what to say of a refused change. */
export function saidOf(error: unknown): string {
  const { sentence, requestId } = failureOf(error);
  return requestId ? `${sentence} (request ${requestId})` : sentence;
}
