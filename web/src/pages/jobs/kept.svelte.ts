/** The columns and views that the page keeps for its user. The address wins over them. */
import { route, setQuery } from "../../router.svelte";
import { read, USUAL } from "../../runs/columns";
import { preference } from "../../shell/preferences.svelte";
import { listText } from "../../text/list";

export interface SavedView {
  readonly name: string;
  /** The query of the view's address, such as `state=failed&sort=name`. */
  readonly query: string;
}

interface Kept {
  readonly columns: readonly string[];
  readonly views: readonly SavedView[];
}

const kept = preference<Kept>("runs", { columns: USUAL, views: [] });

/** Returns the names of the columns that are shown. Reactive. */
export function columnNames(): readonly string[] {
  const text = route().query.get("columns");
  return read(text ?? listText(kept.value.columns.filter((name) => typeof name === "string")));
}

export function chooseColumns(names: readonly string[]): void {
  kept.value = { ...kept.value, columns: names };
  setQuery({ columns: listText(names) });
}

/** Returns the views that are kept, one of each name. What another program wrote there and is none is left out. */
export function savedViews(): readonly SavedView[] {
  const views = kept.value.views.filter(
    (view) => typeof view?.name === "string" && typeof view.query === "string",
  );
  return [...new Map(views.map((view) => [view.name, view])).values()];
}

export function saveViews(views: readonly SavedView[]): void {
  kept.value = { ...kept.value, views };
}
