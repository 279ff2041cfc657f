/** Who uses the page: a session whose cookie the page cannot read. */
import { ApiError, get, onSignedOut, post, setSession } from "../api/client";
import type { MeView } from "../api/wire";

type Stage =
  /** `starting`: asks who it is; `out`: shows the login; `unreachable`: asks again soon. */
  "starting" | "in" | "out" | "unreachable";

const AGAIN_MS = 3_000;
const OLD_LINK =
  "This link has expired or was used before: it is good once, for a minute. Run this for a new one:";

class Session {
  stage = $state<Stage>("starting");
  me = $state.raw<MeView | null>(null);
  /** Why the login is shown, if there is more to say than that it is needed. */
  notice = $state<string | null>(null);
  /** The command that helps, beside the notice. */
  command = $state<string | null>(null);

  /** Exchanges the code of the address for a session, if it has one, and asks who this is. */
  async begin(): Promise<void> {
    onSignedOut(() => this.end("Your session has ended. Sign in again."));
    const code = takeCode();
    if (code !== null) await this.exchange(code);
    if (this.stage !== "in") await this.ask();
  }

  /** Signs in with a token, which is kept nowhere. Throws ApiError. */
  async signIn(token: string): Promise<void> {
    this.enter(await post<MeView>("v1/session", { token }));
  }

  async signOut(): Promise<void> {
    await post("v1/session", undefined, "DELETE");
    this.end(null);
  }

  /** Shows the login. */
  end(notice: string | null): void {
    if (this.stage === "in") this.notice = notice;
    this.me = null;
    setSession(null);
    this.stage = "out";
  }

  private async exchange(code: string): Promise<void> {
    try {
      this.enter(await post<MeView>("v1/session", { code }));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 0) return;
      this.notice = error.status === 429 || error.status >= 500 ? error.message : OLD_LINK;
      this.command = "torchyard open";
    }
  }

  private async ask(): Promise<void> {
    try {
      this.enter(await get<MeView>("v1/me"));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 401) this.end(null);
      else {
        this.stage = "unreachable";
        this.notice = error.message;
        setTimeout(() => void this.ask(), AGAIN_MS);
      }
    }
  }

  private enter(me: MeView): void {
    setSession(me);
    this.me = me;
    this.notice = null;
    this.command = null;
    this.stage = "in";
  }
}

export const session = new Session();

/** Returns the code of the address, and removes it there, whatever becomes of it. */
function takeCode(): string | null {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code !== null) history.replaceState(history.state, "", location.pathname + location.search);
  return code;
}
