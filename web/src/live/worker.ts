/** The SharedWorker: one connection for all tabs, because HTTP/1.1 allows a browser only six. */
import { Hub } from "./hub";
import type { FromTab } from "./messages";

interface SharedScope {
  onconnect: ((event: MessageEvent) => void) | null;
}

const hub = new Hub<MessagePort>((port, message) => port.postMessage(message));

(globalThis as unknown as SharedScope).onconnect = (event) => {
  const port = event.ports[0];
  if (!port) return;
  port.onmessage = (message: MessageEvent<FromTab>) => hub.take(port, message.data);
  hub.join(port);
};
setInterval(() => hub.sweep(), 30_000);
