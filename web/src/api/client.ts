/** Requests to the service, with the browser's cookie and the session's second secret. Paths are relative to the page, so any prefix works. */
import { BASE } from "../base";
import { sessionHeaders } from "./secret";
import type { FileLinkView, Problem } from "./wire";

/** What the service answered instead, or why it could not be asked (`status` 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly requestId: string | null = null,
    readonly errors: Problem["errors"] = [],
  ) {
    super(message);
  }

  /** What was wrong, with the fields that were: for a form that has no place at each. */
  get sentence(): string {
    const fields = this.errors.map(({ field, message }) => (field ? `${field}: ${message}` : message));
    return fields.length > 0 ? fields.join("; ") : this.message;
  }
}

/** Returns what to show of an error. What is no answer of the service is a fault of the page: the console has it, too. */
export function failureOf(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  reportError(error);
  return new ApiError(0, "unknown", String(error));
}

let signedOut: () => void = () => undefined;

/** Calls `then` whenever the service does not know the session any more. */
export function onSignedOut(then: () => void): void {
  signedOut = then;
}

let refused: () => void = () => undefined;

/** Calls `then` whenever the service refuses what the session may not do. */
export function onRefused(then: () => void): void {
  refused = then;
}

/** Returns the URL of an API path such as `v1/jobs`. */
export function url(path: string, query: Query = {}): string {
  const found = new URL(path, BASE);
  for (const [key, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === false) continue;
    for (const item of Array.isArray(value) ? value : [value]) found.searchParams.append(key, String(item));
  }
  return found.href;
}

export type Query = Record<
  string,
  string | number | boolean | readonly (string | number)[] | null | undefined
>;

/** Reads JSON. Throws ApiError. */
export async function get<T>(path: string, query: Query = {}, signal: AbortSignal | null = null): Promise<T> {
  return read<T>(await send("GET", url(path, query), undefined, signal));
}

/** Reads a file of at most so many bytes: it may have grown since it was listed. Throws ApiError. */
export async function getFile(
  path: string,
  signal: AbortSignal | null = null,
  most = Infinity,
): Promise<Blob> {
  const answer = await send("GET", url(path), undefined, signal);
  if (Number(answer.headers.get("content-length")) <= most) return answer.blob();
  await answer.body?.cancel();
  throw new ApiError(0, "too_large", "It is too large to show here.");
}

/** Lets the browser save a file, however large: it sends no header with a download, and so it gets a link. Throws ApiError. */
export async function download(path: string, query: Query = {}): Promise<void> {
  const target = new URL(url(path, query));
  const made = await post<FileLinkView>("v1/links", { path: `/${path}${target.search}` });
  const link = document.createElement("a");
  link.href = url(made.path.slice(1));
  link.download = "";
  link.click();
}

/**
 * Sends a change. With `keepalive` it outlives the page; the same `idempotencyKey` with the same body makes one thing.
 * Throws ApiError.
 */
export async function post<T>(
  path: string,
  body?: unknown,
  method: "POST" | "PATCH" | "PUT" | "DELETE" = "POST",
  keepalive = false,
  idempotencyKey: string | null = null,
): Promise<T> {
  return read<T>(await send(method, url(path), body, null, keepalive, idempotencyKey));
}

/** Sends bytes. Throws ApiError. */
export async function put<T>(path: string, body: Blob, query: Query, signal: AbortSignal): Promise<T> {
  return read<T>(await send("PUT", url(path, query), body, signal));
}

async function send(
  method: string,
  target: string,
  body: unknown,
  signal: AbortSignal | null,
  keepalive = false,
  idempotencyKey: string | null = null,
): Promise<Response> {
  const headers = new Headers({ accept: "application/json", ...sessionHeaders() });
  const isFile = body instanceof Blob;
  if (body !== undefined)
    headers.set("content-type", isFile ? "application/octet-stream" : "application/json");
  if (idempotencyKey !== null) headers.set("idempotency-key", idempotencyKey);
  let answer: Response;
  try {
    answer = await fetch(target, {
      method,
      headers,
      signal,
      keepalive,
      credentials: "same-origin",
      ...(body === undefined ? {} : { body: isFile ? body : JSON.stringify(body) }),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", "The service does not answer.");
  }
  if (!answer.ok) {
    if (answer.status === 401) signedOut();
    if (answer.status === 403) refused();
    throw await errorOf(answer);
  }
  return answer;
}

async function read<T>(answer: Response): Promise<T> {
  return (answer.status === 204 ? undefined : await answer.json()) as T;
}

async function errorOf(answer: Response): Promise<ApiError> {
  const problem = (await answer.json().catch(() => null)) as Problem | null;
  if (problem === null)
    return new ApiError(answer.status, "unknown", `The service answered ${answer.status}.`);
  return new ApiError(answer.status, problem.code, problem.detail, problem.request_id, problem.errors);
}
