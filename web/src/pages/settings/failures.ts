/** Why a change of the settings was refused, in one sentence. */
import { ApiError } from "../../api/client";

/** Returns what to say of a refused change. Throws what is no answer of the service. */
export function saidOf(error: unknown): string {
  if (!(error instanceof ApiError)) throw error;
  const fields = error.errors.map(({ field, message }) => (field ? `${field}: ${message}` : message));
  const request = error.requestId ? ` (request ${error.requestId})` : "";
  return `${fields.length > 0 ? fields.join("; ") : error.message}${request}`;
}
