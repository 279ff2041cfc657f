/** A reverse proxy that serves the service below a path, as nginx does with `proxy_pass http://service/`. */
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";

export interface Proxy {
  /** The address of the folder, with a slash at its end. */
  readonly root: string;
  readonly stop: () => void;
}

export async function mount(service: string, prefix: string): Promise<Proxy> {
  const target = new URL(service);
  const server = createServer((incoming, outgoing) => {
    if (!incoming.url?.startsWith(prefix)) {
      outgoing.writeHead(404).end();
      return;
    }
    const path = `/${incoming.url.slice(prefix.length)}`;
    const forward = request(
      { host: target.hostname, port: target.port, method: incoming.method, path, headers: incoming.headers },
      (answer) => {
        outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(outgoing);
      },
    );
    forward.on("error", () => outgoing.destroy());
    outgoing.on("close", () => forward.destroy());
    incoming.pipe(forward);
  });
  await new Promise<void>((ready) => server.listen(0, "127.0.0.1", ready));
  return {
    root: `http://127.0.0.1:${(server.address() as AddressInfo).port}${prefix}`,
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
