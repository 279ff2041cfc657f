/** How both ends of a reach show that they know its secret, as torchyard/contract/reach/proof.py does (RFC 2104). */
import { joined, type Bytes } from "./frames";

const CONTEXT = "torchyard-reach-1";
const text = new TextEncoder();

/** What a proof is of. The secret is in hex. */
export interface Proven {
  readonly secret: string;
  readonly reach: string;
  readonly meeting: number;
  readonly serviceNonce: string;
  readonly endNonce: string;
}

export function newNonce(): string {
  return toHex(crypto.getRandomValues(new Uint8Array(32)));
}

/** Returns the proof of the client, in hex. */
export async function prove(of: Proven): Promise<string> {
  return toHex(new Uint8Array(await crypto.subtle.sign("HMAC", await key(of), message("client", of))));
}

/** Returns whether it is the proof of the service. It takes the same time whether it is or not. */
export async function proves(proof: string, of: Proven): Promise<boolean> {
  if (!/^[0-9a-f]{64}$/.test(proof)) return false;
  return crypto.subtle.verify("HMAC", await key(of), fromHex(proof), message("service", of));
}

function key({ secret }: Proven): Promise<CryptoKey> {
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  return crypto.subtle.importKey("raw", fromHex(secret), algorithm, false, ["sign", "verify"]);
}

function message(side: string, { reach, meeting, serviceNonce, endNonce }: Proven): Bytes {
  const parts = [side, reach, String(meeting), serviceNonce, endNonce].flatMap((part) => {
    const content = text.encode(part);
    const length = new Uint8Array(4);
    new DataView(length.buffer).setUint32(0, content.length);
    return [length, content];
  });
  return joined([...parts, text.encode(CONTEXT)]);
}

function toHex(bytes: Bytes): string {
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function fromHex(digits: string): Bytes {
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}
