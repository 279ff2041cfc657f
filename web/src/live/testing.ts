/** A service whose streams a test writes. */

export interface Connection {
  readonly url: URL;
  readonly headers: Headers;
  send(name: string, data: unknown): Promise<void>;
  end(): Promise<void>;
}

/** Returns a `fetch` that answers streams, and a function that waits for the next request to it. */
export function service(): { request: typeof fetch; next: () => Promise<Connection> } {
  const connections: Connection[] = [];
  const waiting: ((connection: Connection) => void)[] = [];
  const request = ((target: string, init: RequestInit) => {
    const pipe = new TransformStream<Uint8Array, Uint8Array>();
    const writer = pipe.writable.getWriter();
    init.signal?.addEventListener("abort", () => void writer.abort().catch(() => undefined));
    const write = (text: string): Promise<void> => writer.write(new TextEncoder().encode(text));
    const connection: Connection = {
      url: new URL(target),
      headers: new Headers(init.headers),
      send: (name, data) => write(`event: ${name}\ndata: ${JSON.stringify(data)}\n\n`),
      end: () => writer.close(),
    };
    const take = waiting.shift();
    if (take) take(connection);
    else connections.push(connection);
    return Promise.resolve(new Response(pipe.readable));
  }) as typeof fetch;
  return {
    request,
    next: () => {
      const found = connections.shift();
      return found ? Promise.resolve(found) : new Promise((resolve) => waiting.push(resolve));
    },
  };
}

/** Collects messages, and waits until one of them is as wanted. */
export function inbox<T>(): {
  take: (message: T) => void;
  all: T[];
  until: (is: (message: T) => boolean) => Promise<T>;
} {
  const all: T[] = [];
  const waiting: { is: (message: T) => boolean; found: (message: T) => void }[] = [];
  return {
    all,
    take: (message) => {
      all.push(message);
      for (const entry of waiting.filter(({ is }) => is(message))) entry.found(message);
    },
    until: (is) => {
      const known = all.find(is);
      return known !== undefined
        ? Promise.resolve(known)
        : new Promise((found) => waiting.push({ is, found }));
    },
  };
}
