/** The columns that the page keeps for its user, and whether charts are beside the table. The address wins over them. */
import { route, setQuery } from "../../router.svelte";
import { read, USUAL } from "../../runs/columns";
import { preference } from "../../shell/preferences.svelte";
import { listText } from "../../text/list";

const columns = preference<{ readonly names: readonly string[] }>("runs.columns", { names: USUAL });
/** Beside charts there are other columns: without names, those that are suggested. */
const arrangement = preference<{ readonly isBeside: boolean; readonly names: readonly string[] }>(
  "runs.beside",
  {
    ...{ isBeside: false, names: [] },
  },
);

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
