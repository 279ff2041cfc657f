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

/** Each is kept by itself: a tab that changes one takes nothing of the other from another tab. */
const columns = preference<{ readonly names: readonly string[] }>("runs.columns", { names: USUAL });
const views = preference<{ readonly views: readonly SavedView[] }>("runs", { views: [] });

/** Returns the names of the columns that are shown. Reactive. */
export function columnNames(): readonly string[] {
  const text = route().query.get("columns");
  return read(text ?? listText(columns.value.names.filter((name) => typeof name === "string")));
}

export function chooseColumns(names: readonly string[]): void {
  columns.value = { names };
  setQuery({ columns: listText(names) });
}

/** Returns the views that are kept, one of each name. What another program wrote there and is none is left out. */
export function savedViews(): readonly SavedView[] {
  const found = views.value.views.filter(
    (view) => typeof view?.name === "string" && typeof view.query === "string",
  );
  return [...new Map(found.map((view) => [view.name, view])).values()];
}

export function saveViews(next: readonly SavedView[]): void {
  views.value = { views: next };
}
