/** The worker that parses Markdown: a text that keeps it busy does not stop the page. */
import { parse } from "./parse";
import type { FromWorker } from "./reader";

const say = (message: FromWorker): void => postMessage(message);

onmessage = ({ data }: MessageEvent<string>) => say(parse(data));
say("loaded");
