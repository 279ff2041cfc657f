/** A folder on its way: what of it would be uploaded, and how far that is. */
import { failureOf } from "../api/client";
import type { Packer } from "./packer";
import type { Summary } from "./packing";
import { Refused } from "./refused";
import type { Kind } from "./selecting";
import { forget, upload } from "./uploading";
import { folderOf, type Taken } from "./walking";

type Stage = "looks" | "asks" | "reads" | "sends";

export class Progress {
  stage = $state<Stage>("looks");
  name = $state("");
  /** Files that are found so far. */
  found = $state(0);
  summary = $state.raw<Summary | null>(null);
  /** Bytes that are read, or have arrived. */
  done = $state(0);
  /** Why it waits before it tries again. */
  trouble = $state<string | null>(null);
  /** Why it stopped. */
  failure = $state<string | null>(null);
  /** Whether it may go on from where it stopped. */
  mayGoOn = $state(false);

  private readonly cut = new AbortController();
  private sha256: string | null = null;
  private hasSent = false;

  constructor(
    private readonly kind: Kind,
    private readonly packer: Pick<Packer, "take" | "prepare" | "digest" | "piece" | "close">,
  ) {}

  /** Lists the files of the folder, and says which of them would go along. */
  async look(taken: Taken): Promise<void> {
    await this.tried(async () => {
      const folder = folderOf(taken);
      this.name = folder.name;
      for await (const files of folder.files()) {
        if (this.cut.signal.aborted) return;
        this.found += files.length;
        this.packer.take(files);
      }
      this.summary = await this.packer.prepare(this.kind);
      this.stage = "asks";
    });
  }

  /** Uploads it, from where it stopped. Returns the URL of the bundle; null if that fails. */
  async send(): Promise<string | null> {
    const size = this.summary?.size ?? 0;
    return this.tried(async () => {
      [this.failure, this.trouble, this.done, this.stage] = [null, null, 0, "reads"];
      const sha256 = (this.sha256 ??= await this.packer.digest((done) => (this.done = done)));
      [this.done, this.stage] = [0, "sends"];
      await upload({
        sha256,
        size,
        piece: (start, end) => {
          this.hasSent = true;
          return this.packer.piece(start, end);
        },
        tell: (received, trouble) => ([this.done, this.trouble] = [received, trouble]),
        signal: this.cut.signal,
      });
      this.hasSent = false; // it is the account's now
      return `bundle:sha256:${sha256}`;
    });
  }

  /** Stops, and has the service forget what has arrived. */
  cancel(): void {
    this.close();
    if (this.hasSent && this.sha256 !== null) void forget(this.sha256);
  }

  /** Stops. What has arrived is kept for a day. */
  close(): void {
    this.cut.abort();
    this.packer.close();
  }

  private async tried<T>(step: () => Promise<T>): Promise<T | null> {
    try {
      return await step();
    } catch (error) {
      if (this.cut.signal.aborted) return null;
      this.mayGoOn = !(error instanceof Refused) && this.summary !== null;
      this.failure = error instanceof Refused ? error.message : failureOf(error).sentence;
      return null;
    }
  }
}
