/** Lists that were saved under a name: one's own, and those that others keep for the team. */
import { ApiError, get, post } from "../../api/client";
import { Reading } from "../../api/reading.svelte";
import type { Page, SavedView } from "../../api/wire";

const PATH = "v1/saved-views";

export class SavedViews {
  private readonly reading = new Reading(() => get<Page<SavedView>>(PATH));
  private refused = $state.raw<ApiError | null>(null);

  get all(): readonly SavedView[] {
    return this.reading.value?.data ?? [];
  }

  /** Why the newest request failed. */
  get failure(): ApiError | null {
    return this.refused ?? this.reading.failure;
  }

  read(): Promise<void> {
    return this.reading.read();
  }

  close(): void {
    this.reading.close();
  }

  /** Saves a view. It replaces the user's own of the same name. Returns whether it was saved. */
  save(name: string, query: string, isOfTeam: boolean): Promise<boolean> {
    return this.change(PATH, "PUT", { name, query, visibility: isOfTeam ? "team" : "private" });
  }

  /** Removes a view. Returns whether it is gone. */
  remove({ name, owner }: SavedView): Promise<boolean> {
    return this.change(`${PATH}?${new URLSearchParams({ name, owner }).toString()}`, "DELETE");
  }

  private async change(path: string, method: "PUT" | "DELETE", body?: unknown): Promise<boolean> {
    this.refused = null;
    try {
      await post(path, body, method);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.refused = error;
      return false;
    }
    await this.read();
    return true;
  }
}
