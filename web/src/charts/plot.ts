/** uPlot for axes, crosshair and selection; the lines are painted from typed rows, which need no common x. */
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { XKind } from "./axis";
import { clockTicks, evenTicks, logTicks, placeTicks, roundSteps, tickText, TIME_STEPS } from "./labels";
import type { Line } from "./line";
import { roomAbove } from "./marks";
import { paint, paintMarked, type PaintView } from "./paint";
import type { Span } from "./span";
import { theme } from "./theme";
import { shareOf, type Area } from "./trace";
import "./plot.css";

export interface Scene {
  readonly lines: readonly Line[];
  readonly x: Span;
  readonly y: Span;
  readonly smooth: boolean;
}

export interface Mark {
  readonly x: number;
  readonly y: number;
  readonly slot: number;
}

export interface PlotOptions {
  readonly kind: XKind;
  readonly log: boolean;
  readonly width: number;
  readonly height: number;
  /** Charts with one name have one crosshair. */
  readonly group: string;
  /** Tells the place of the crosshair, and how far from left and top it is where it is this chart's own; null when it has left. */
  readonly hovered: (x: number | null, own: { readonly left: number; readonly top: number } | null) => void;
  /** Tells the range that was dragged, or null after a double click. */
  readonly zoomed: (range: Span | null) => void;
}

/** Pixels: the width of the y axis at least, of a digit of its labels, between those, and of half a label of the x axis. */
const LEAST_AXIS = 48;
const DIGIT = 6.5;
const TICK_SPACE = 32;
const HALF_LABEL = 20;

export class Plot {
  readonly #plot: uPlot;
  readonly #dots: HTMLElement[] = [];
  /** Over the lines, where one of them stands out. */
  readonly #over = document.createElement("canvas");
  #marked: string | null = null;
  #scene: Scene = { lines: [], x: { min: 0, max: 1 }, y: { min: 0.1, max: 1 }, smooth: false };

  constructor(
    target: HTMLElement,
    readonly options: PlotOptions,
  ) {
    this.#plot = new uPlot(
      this.#config(),
      [
        [0, 1],
        [null, null],
      ],
      target,
    );
    this.#over.className = "over";
    this.#over.hidden = true;
    this.#plot.over.prepend(this.#over);
  }

  get canvas(): HTMLCanvasElement {
    return this.#plot.ctx.canvas;
  }

  /** Shows a scene at once. */
  show(scene: Scene): void {
    this.#scene = scene;
    this.#plot.batch(() => {
      this.#plot.setScale("x", { ...scene.x });
      this.#plot.redraw(false, true);
    });
  }

  resize(width: number, height: number): void {
    this.#plot.setSize({ width, height });
  }

  /** Puts a dot on each of these points, in the colour of its slot. */
  mark(points: readonly Mark[]): void {
    for (const [i, { x, y, slot }] of points.entries()) {
      const dot = (this.#dots[i] ??= this.#plot.over.appendChild(document.createElement("i")));
      const share = this.#share(y);
      dot.className = share >= 0 && share <= 1 ? "dot" : "dot off";
      dot.style.background = theme().series[slot - 1] ?? theme().ink;
      dot.style.transform = `translate(${this.#plot.valToPos(x, "x")}px, ${this.#plot.valToPos(share, "y")}px)`;
    }
    for (const dot of this.#dots.slice(points.length)) dot.className = "dot off";
  }

  /** Lets the lines of a job, or of a group, stand out from the others; null: none. */
  standOut(jobId: string | null): void {
    if (this.#marked === jobId) return;
    this.#marked = jobId;
    this.#paintMarked();
  }

  /** Returns how far down a value lies, in pixels of the page. */
  top(value: number): number {
    return this.#plot.valToPos(this.#share(value), "y");
  }

  destroy(): void {
    this.#plot.destroy();
  }

  #config(): uPlot.Options {
    const { kind, width, height, group } = this.options;
    const axis = { stroke: () => theme().muted, font: `11px ${theme().bodyFont}`, ticks: { show: false } };
    return {
      width,
      height,
      padding: [() => roomAbove(this.#scene.lines), HALF_LABEL, 0, 0],
      legend: { show: false },
      focus: { alpha: 1 },
      cursor: {
        y: false,
        points: { show: false, one: true },
        drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => () => this.#reset() },
        sync: { key: group, setSeries: false, scales: ["x", null], filters: { pub: isMove, sub: isMove } },
      },
      scales: {
        x: { time: false, auto: false, min: 0, max: 1 },
        y: { auto: false, min: 0, max: 1 }, // shares of the height: it fails with values beyond 1e±16
      },
      series: [{}, { paths: () => null, points: { show: false } }],
      axes: [
        {
          ...axis,
          size: 26,
          gap: 8,
          space: 64,
          grid: { show: false },
          values: (_, places, __, ___, step) => placeTicks(kind, places, step),
          ...(kind === "step" ? { incrs: wholeSteps } : {}),
          ...(kind === "trained" ? { incrs: TIME_STEPS } : {}),
          ...(kind === "wall"
            ? { incrs: TIME_STEPS, splits: (_, __, min, max, step) => clockTicks(min, max, step) }
            : {}),
        },
        {
          ...axis,
          size: (_, labels) =>
            Math.max(LEAST_AXIS, ...(labels ?? []).map((label) => 14 + label.length * DIGIT)),
          gap: 6,
          space: TICK_SPACE,
          grid: { stroke: () => theme().grid, width: 1 },
          splits: (plot) => this.#ticks(plot).map((value) => this.#share(value)),
          values: (plot) => this.#ticks(plot).map(tickText),
        },
      ],
      hooks: {
        draw: [() => this.#paint()],
        setCursor: [(plot) => this.#hover(plot)],
        setSelect: [(plot) => this.#select(plot)],
      },
    };
  }

  #paint(): void {
    paint(this.#plot.ctx, this.#area(), this.#scene.lines, this.#view(), theme());
    this.#paintMarked();
  }

  #paintMarked(): void {
    const { lines } = this.#scene;
    const marked = this.#marked === null ? [] : lines.filter(({ jobId }) => jobId === this.#marked);
    this.#over.hidden = marked.length === 0 || marked.length === lines.length;
    const ctx = this.#over.hidden ? null : this.#over.getContext("2d");
    if (!ctx) return;
    const area = { ...this.#area(), left: 0, top: 0 };
    this.#over.width = area.width; // which clears it, too
    this.#over.height = area.height;
    paintMarked(ctx, area, marked, this.#view(), theme());
  }

  #view(): PaintView {
    return { smooth: this.#scene.smooth, breakAtSeams: this.options.kind === "wall" };
  }

  #ticks(plot: uPlot): readonly number[] {
    const { min, max } = this.#scene.y;
    const most = Math.floor(plot.bbox.height / uPlot.pxRatio / TICK_SPACE);
    return this.options.log ? logTicks(min, max) : evenTicks(min, max, most);
  }

  #share(value: number): number {
    return shareOf({ y: this.#scene.y, log: this.options.log }, value);
  }

  #area(): Area {
    const { left, top, width, height } = this.#plot.bbox;
    const { x, y } = this.#scene;
    return { left, top, width, height, ratio: uPlot.pxRatio, x, y, log: this.options.log };
  }

  #hover(plot: uPlot): void {
    const { left = -1, top = -1 } = plot.cursor;
    const own = plot.cursor.event && left >= 0 ? { left, top } : null;
    this.options.hovered(left < 0 ? null : plot.posToVal(left, "x"), own);
  }

  #select(plot: uPlot): void {
    const { left, width } = plot.select;
    if (width < 4) return;
    const range = { min: plot.posToVal(left, "x"), max: plot.posToVal(left + width, "x") };
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.options.zoomed(range);
  }

  #reset(): null {
    this.options.zoomed(null);
    return null;
  }
}

/** Returns distances between ticks of steps, of which there is none between 1 and 2. */
function wholeSteps(_: uPlot, __: number, min: number, max: number, width: number, space: number): number[] {
  const steps = roundSteps(((max - min) * space) / width).filter(Number.isInteger);
  return steps.length > 0 ? steps : [1];
}

function isMove(type: string): boolean {
  return type === "mousemove" || type === "mouseleave";
}
