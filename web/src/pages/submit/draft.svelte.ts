/** What one is about to submit: its YAML, and the document that the form shows, which is that of the newest YAML that could be read. */
import { at, equal, isObject, put, type Json, type JsonObject } from "../../specs/json";
import {
  fitting,
  isSweep,
  jobOf,
  kindOf,
  lost,
  merged,
  unfit,
  variedIn,
  withMethod,
  withTrainer,
  withValue,
  withVaried,
} from "../../specs/document";
import { edited } from "../../specs/editing";
import { Fault } from "../../specs/fault";
import { lineOf, read, type Read } from "../../specs/reading";
import { fieldAt, fieldsOf, sweepFieldsOf, type Field, type Schemas } from "../../specs/schema";
import { Past } from "./past";

export class Draft {
  text = $state("");
  document = $state.raw<JsonObject>({});
  /** Why the YAML cannot be read. Until it can, the form stays as it was. */
  fault = $state.raw<Fault | null>(null);
  /** How often a change was taken back or made again: what a field has half typed is of before. */
  moves = $state(0);
  private found: Read = { document: {}, places: new Map() };
  private readonly past = new Past();
  /** The newest values of the configurations of other trainers. */
  private others: JsonObject = {};
  /** The values of each trainer's configuration where the next trainer takes others. */
  private readonly aside = new Map<string, JsonObject>();

  readonly job = $derived(jobOf(this.document));
  readonly kind = $derived(kindOf(this.document));
  readonly isSweep = $derived(isSweep(this.document));
  /** All fields of the trainer; null if the document names none that there is. */
  readonly root: Field | null = $derived.by(() => fieldsOf(this.schemas.job, this.job.trainer));

  /** All fields of what a sweep has around its job. */
  readonly sweepRoot: Field;

  constructor(
    readonly schemas: Schemas,
    text: string,
  ) {
    this.sweepRoot = sweepFieldsOf(schemas.sweep);
    this.show(text);
  }

  /** Takes what is typed as YAML. */
  type(text: string): void {
    this.change(text, "yaml");
  }

  /** Takes the last change back, in the form or in the YAML. */
  undo(): void {
    this.move(this.past.back(this.text));
  }

  redo(): void {
    this.move(this.past.forth(this.text));
  }

  /** The method of the sweep. */
  get method(): string {
    return typeof this.document.method === "string" ? this.document.method : "grid";
  }

  /** The keys that vary. */
  get variedKeys(): readonly string[] {
    const { parameters } = this.document;
    return this.isSweep && isObject(parameters) ? Object.keys(parameters) : [];
  }

  given({ isOfSweep, path }: Field): Json | undefined {
    return at(isOfSweep ? this.document : this.job, path);
  }

  /** Changes a value. Undefined is the default. */
  set(field: Field, value: Json | undefined): void {
    if (field.key === "sweep.method")
      this.write(withMethod(this.document, String(value ?? "grid")), field.key);
    else if (field.isOfSweep) this.write(put(this.document, field.path, value), field.key);
    else if (this.root) this.write(withValue(this.document, this.root, field.path, value), field.key);
  }

  /** Takes another trainer. What that one does not take is there again with one that does. */
  setTrainer(trainer: string): void {
    const root = fieldsOf(this.schemas.job, trainer);
    const { trainer: before, config } = this.job;
    const old = isObject(config) ? config : {};
    if (root === null || trainer === before) return;
    const known = this.root ? fitting(fieldAt(this.root, ["config"]), this.others) : {};
    this.others = merged(lost(this.others, known), old);
    const values = { all: this.others, own: this.aside.get(trainer) ?? {} };
    this.write(withTrainer(this.document, root, trainer, values), "trainer");
    this.aside.set(String(before), unfit(fieldAt(root, ["config"]), old));
  }

  varied(field: Field): Json | undefined {
    if (field.isOfSweep) return undefined;
    return variedIn(this.document, field.key);
  }

  vary(field: Field, values: Json | undefined): void {
    const isFirst = values !== undefined && !this.isSweep && this.root !== null;
    // The values stand in the sweep, and not in its job too.
    const job =
      isFirst && this.root ? withValue(this.document, this.root, field.path, undefined) : this.document;
    this.write(withVaried(job, field.key, values), field.key);
  }

  /** Returns the line of a field's value; null if it has none. */
  lineOf(field: Field): number | null {
    if (this.given(field) !== undefined)
      return this.line(this.isSweep && !field.isOfSweep ? `job.${field.key}` : field.path.join("."));
    return this.varied(field) === undefined ? null : this.line(`parameters.${field.key}`);
  }

  /** Returns the line that an error is at, by what the service calls the field of the document. */
  line(field: string): number {
    const parts = field.split(".");
    const parameters = this.document.parameters;
    if (parts[0] === "parameters" && isObject(parameters)) {
      const key = Object.keys(parameters).find((each) => field.startsWith(`parameters.${each}`));
      if (key !== undefined) return lineOf(this.found, ["parameters", key]);
    }
    return lineOf(this.found, parts);
  }

  /** Changes the text so that it says another document. */
  private write(document: JsonObject, of: string): void {
    if (!equal(document, this.document)) this.change(edited(this.text, document), of);
  }

  private change(text: string, of: string): void {
    if (text === this.text) return;
    this.past.note(this.text, of);
    this.show(text);
  }

  private move(text: string | null): void {
    if (text === null) return;
    this.moves++;
    this.show(text);
  }

  private show(text: string): void {
    this.text = text.replace(/^\ufeff/, ""); // a mark of bytes that editors write
    try {
      this.found = read(this.text);
      this.document = this.found.document;
      this.fault = null;
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      this.fault = error;
    }
  }
}
