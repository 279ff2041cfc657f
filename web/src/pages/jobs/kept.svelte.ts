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

const MOST_VIEWS = 50;

/** Each is kept by itself: a tab that changes one takes nothing of the other from another tab. */
const columns = preference<{ readonly names: readonly string[] }>("runs.columns", { names: USUAL });
/** Beside charts there are other columns: without names, those that are suggested. */
const arrangement = preference<{ readonly isBeside: boolean; readonly names: readonly string[] }>(
  "runs.beside",
  {
    ...{ isBeside: false, names: [] },
  },
);
const views = preference<{ readonly views: readonly SavedView[] }>("runs", { views: [] });

/** Returns the names of the columns that were chosen; none where those shall be shown that are suggested. Reactive. */
export function columnNames(): readonly string[] {
  const text = route().query.get("columns");
  const { names } = isBeside() ? arrangement.value : columns.value;
  return read(text ?? listText(names.filter((name) => typeof name === "string")));
}

/** Whether charts are beside the table. Reactive. */
export function isBeside(): boolean {
  const text = route().query.get("as");
  return text === null ? arrangement.value.isBeside : text === "charts";
}

/** Shows charts beside the table, or the table alone, also the next time. */
export function arrange(toBeside: boolean): void {
  arrangement.change((kept) => ({ ...kept, isBeside: toBeside }));
  setQuery({ as: toBeside ? "charts" : "table", columns: null });
}

export function chooseColumns(names: readonly string[]): void {
  if (isBeside()) arrangement.change((kept) => ({ ...kept, names }));
  else columns.value = { names };
  setQuery({ columns: listText(names) });
}

/** Returns the views that are kept. Reactive. */
export function savedViews(): readonly SavedView[] {
  return valid(views.value.views);
}

/** Keeps a view, in place of one of its name, beside those that other tabs keep. */
export function saveView(view: SavedView): void {
  views.change(({ views: kept }) => ({ views: [...without(kept, view.name), view].slice(-MOST_VIEWS) }));
}

export function forgetView(name: string): void {
  views.change(({ views: kept }) => ({ views: without(kept, name) }));
}

function without(kept: readonly SavedView[], name: string): readonly SavedView[] {
  return valid(kept).filter((view) => view.name !== name);
}

/** Leaves out what another program wrote there and is no view, and all but the last of a name. */
function valid(kept: readonly SavedView[]): readonly SavedView[] {
  const found = kept.filter((view) => typeof view?.name === "string" && typeof view.query === "string");
  return [...new Map(found.map((view) => [view.name, view])).values()];
}
