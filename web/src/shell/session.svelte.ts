/** Who uses the page: a session whose cookie the page cannot read, and whose second secret it sends. */
import { failureOf, get, onRefused, onSignedOut, post } from "../api/client";
import { forget, hold, keep, kept, secret } from "../api/secret";
import type { CodeOwnerView, MeView, SessionView } from "../api/wire";

type Stage =
  /**
   * `starting`: asks who it is; `offered`: asks whether to take the link's account; `out`: shows the login;
   * `unreachable`: asks again soon.
   */
  "starting" | "in" | "offered" | "out" | "unreachable";

/** A link's login, which nobody has accepted yet. */
interface Offer {
  readonly code: string;
  readonly owner: CodeOwnerView;
  /** Who is signed in now; null for nobody. */
  readonly me: MeView | null;
}

const ME = ["v1/me", { preferences: true }] as const;
const AGAIN_MS = 3_000;
const OLD_LINK = "This link has expired or was used. Get a new one:";
const ENDED = "Your session has ended. Sign in again.";

class Session {
  stage = $state<Stage>("starting");
  me = $state.raw<MeView | null>(null);
  offer = $state.raw<Offer | null>(null);
  /** Why the login is shown, if there is more to say than that it is needed. */
  notice = $state<string | null>(null);
  /** The command that helps, beside the notice. */
  command = $state<string | null>(null);

  /** Asks who this is, and whether to take the account of the address's code, if it has one. */
  async begin(): Promise<void> {
    onSignedOut(() => this.expire());
    onRefused(() => void this.review());
    hold(kept());
    await this.ask(takeCode());
  }

  /** Signs in with a token, which is kept nowhere. `exec`: for terminals, too. Throws ApiError. */
  async signIn(token: string, exec = false): Promise<void> {
    this.open(await post<SessionView>("v1/session", { token, exec }));
  }

  async signOut(): Promise<void> {
    await post("v1/session", undefined, "DELETE");
    this.end(null);
  }

  /** Spends the offered code. `exec`: for terminals, too. */
  async accept(exec = false): Promise<void> {
    const { offer } = this;
    if (!offer) return;
    try {
      this.open(await post<SessionView>("v1/session", { code: offer.code, exec }));
    } catch (error) {
      this.explain(error);
      this.settle(offer.me);
    }
  }

  /** Leaves the offered code unused. */
  decline(): void {
    this.settle(this.offer?.me ?? null);
  }

  /** Shows the login, as the service does not know the session any more. */
  expire(): void {
    if (this.stage === "in") this.end(ENDED);
  }

  /** Asks again what the account may do: an administrator may have changed it. */
  private async review(): Promise<void> {
    if (this.stage !== "in") return;
    const me = await get<MeView>(...ME).catch(() => null);
    if (me !== null && this.stage === "in") this.me = me;
  }

  /** Shows the login; the page in a newer session, if another tab has opened one. */
  private end(notice: string | null): void {
    const newer = kept();
    if (newer !== null && newer !== secret()) {
      location.reload();
      return;
    }
    this.notice = notice;
    forget();
    this.settle(null);
  }

  private async ask(code: string | null): Promise<void> {
    try {
      const me = await this.who();
      const owner = code === null ? null : await this.ownerOf(code);
      if (code === null || owner === null || owner.name === me?.name) this.settle(me);
      else {
        this.offer = { code, owner, me };
        this.stage = "offered";
      }
    } catch (error) {
      this.stage = "unreachable";
      this.notice = failureOf(error).message;
      setTimeout(() => void this.ask(code), AGAIN_MS);
    }
  }

  /** Returns who is signed in; null for nobody. Throws ApiError. */
  private async who(): Promise<MeView | null> {
    if (secret() === null) return null; // no request can succeed without it
    try {
      return await get<MeView>(...ME);
    } catch (error) {
      const { status, code: reason } = failureOf(error);
      if (status !== 401) throw error;
      this.notice = reason === "session_ended" ? ENDED : null;
      forget();
      return null;
    }
  }

  /** Returns for whom the code was made; null if it is not good any more. Throws ApiError if nothing answers. */
  private async ownerOf(code: string): Promise<CodeOwnerView | null> {
    try {
      return await post<CodeOwnerView>("v1/session/codes/check", { code });
    } catch (error) {
      if (failureOf(error).status === 0) throw error;
      this.explain(error);
      return null;
    }
  }

  /** Says why the link did not sign in. */
  private explain(error: unknown): void {
    const { status, message } = failureOf(error);
    this.notice = status === 401 ? OLD_LINK : message;
    this.command = "torchyard open";
  }

  private open({ csrf, ...me }: SessionView): void {
    keep(csrf);
    this.settle(me);
  }

  private settle(me: MeView | null): void {
    this.me = me;
    this.offer = null;
    this.stage = me === null ? "out" : "in";
    if (me === null) return;
    this.notice = null;
    this.command = null;
  }
}

export const session = new Session();

/** Returns the code of the address, and removes it there, whatever becomes of it. */
function takeCode(): string | null {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code !== null) history.replaceState(history.state, "", location.pathname + location.search);
  return code;
}
