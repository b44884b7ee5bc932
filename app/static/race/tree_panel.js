// The tree of one step: which decoder, which step, and whether to follow what comes.
import { button, field, make, setText } from "../dom.js";
import { GAP, layOut, pathTo, setApart } from "./tree_layout.js";
import { TreeDrawing } from "./tree_drawing.js";
import { loadPlotly, TreePlot } from "./tree_plot.js";
import { TreeTable } from "./tree_table.js";
import { fate, nodeFacts, stepSummary, stepTimes } from "./tree_words.js";
import { LABELS, quoted } from "./tokens.js";

const LIVE_INTERVAL = 125; // milliseconds between two trees while they come
const SMALLEST = 4; // rows on either side of the path that there is always room for
const LABEL_ROOM = 27; // pixels for the path's labels between it and its neighbours
const AXIS = 36; // pixels of the picture's height that hold no rows

export class TreePanel {
  // plotly: where its script lies, or null; onChange: another decoder or step was chosen
  constructor({ plotly, onChange }) {
    this.onChange = onChange;
    this.decoder = null;
    this.step = 0;
    this.follow = true;
    this.drawn = "";
    this.draws = 0; // trees drawn; who counts sets it to 0
    this.drawnAt = 0;
    this.cost = 0;
    this.build();
    this.extents = new Map();
    this.notice("Loading the plot \u2026");
    if (plotly) {
      loadPlotly(plotly).then(
        (library) => this.use(new TreePlot(this.canvas, library, (node) => this.pick(node))),
        () => this.useDrawing("The plotting library could not be loaded"),
      );
    } else {
      this.useDrawing("Plotly is not installed on the server");
    }
    // Colours and sizes are the page's: draw again when they change.
    new MutationObserver(() => this.refresh()).observe(document.body, { attributeFilter: ["class"] });
    let width = 0;
    new ResizeObserver(([entry]) => {
      if (entry.contentRect.width === width) return;
      width = entry.contentRect.width;
      if (width) this.refresh();
    }).observe(this.canvas);
  }

  build() {
    this.node = make("section", "race-card race-tree");
    this.node.setAttribute("aria-label", "Draft tree");
    this.title = make("h3", "", "Draft tree");
    this.choice = make("div", "race-choice");
    this.choice.setAttribute("role", "radiogroup");
    this.choice.setAttribute("aria-label", "Decoder");
    const head = make("div", "race-card-head");
    head.append(this.title, this.choice);

    this.previous = button("race-icon", "Previous step", () => this.go(this.step - 1), "\u2039");
    this.next = button("race-icon", "Next step", () => this.go(this.step + 1), "\u203a");
    this.slider = make("input");
    this.slider.type = "range";
    this.slider.min = 1;
    this.slider.className = "race-slider";
    this.slider.id = "tree-step";
    this.slider.setAttribute("aria-label", "Step");
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    this.position = make("span", "race-position");
    this.box = make("input");
    this.box.type = "checkbox";
    this.box.id = "tree-follow";
    this.box.checked = true;
    this.box.addEventListener("change", () => {
      this.follow = this.box.checked;
      this.onChange();
    });
    const steps = make("div", "race-steps");
    steps.append(this.previous, this.slider, this.next, this.position,
      field("race-check", this.box, "follow live"));

    this.canvas = make("div", "race-canvas");
    this.canvas.id = "tree";
    this.canvas.setAttribute("role", "img");
    this.message = make("p", "race-message");
    const stage = make("div", "race-stage");
    stage.append(this.canvas, this.message);
    this.caption = make("p", "race-caption");
    this.picked = make("p", "race-picked");
    this.picked.setAttribute("aria-live", "polite");
    this.table = new TreeTable((node) => this.pick(node));
    this.node.append(head, steps, stage, legend(), this.caption, this.picked, this.table.node);
  }

  use(view) {
    this.notice("");
    this.view = view;
    this.refresh();
  }

  useDrawing(reason) {
    this.plain = `${reason}: this is a plain drawing.`;
    this.use(new TreeDrawing(this.canvas, (node) => this.pick(node)));
  }

  notice(text) {
    setText(this.message, text);
    this.message.hidden = !text;
  }

  refresh() {
    this.drawn = "";
    if (this.trace) this.show(this.trace, this.moment, true);
  }

  clear() {
    clearTimeout(this.later);
    this.later = 0;
    this.trace = null;
    this.decoder = null;
    this.follow = this.box.checked = true;
    this.step = 0;
    this.extents.clear();
    this.choice.replaceChildren();
    this.drawn = "";
    this.empty("");
  }

  choose(name) {
    this.decoder = name;
    this.onChange();
  }

  // Go to a step, and stay there while others come.
  go(step, name = this.decoder) {
    if (!this.trace) return;
    this.decoder = name;
    const most = this.trace.lanes.get(name).steps.length - 1;
    if (most < 1) return;
    this.step = Math.max(1, Math.min(most, step));
    this.follow = this.box.checked = false;
    this.onChange();
  }

  // The step that is on show, where the visitor chose it.
  get chosen() {
    return this.follow || !this.decoder ? null : { decoder: this.decoder, step: this.step };
  }

  // now: whether to draw at once, because a visitor waits for it
  show(trace, moment, now = false) {
    this.trace = trace;
    this.moment = moment;
    if (!this.choice.children.length) this.buildChoice(trace.header.decoders);
    const wait = Math.max(LIVE_INTERVAL, 5 * this.cost) - (performance.now() - this.drawnAt);
    if (!now && wait > 0) {
      // What came last must be shown even if nothing follows it.
      if (!this.later) this.later = setTimeout(() => this.show(this.trace, this.moment, true), wait);
      return;
    }
    clearTimeout(this.later);
    this.later = 0;
    this.draw();
  }

  buildChoice(decoders) {
    this.decoder = decoders.find((name) => name !== "baseline") || decoders[0];
    for (const name of decoders) {
      const input = make("input");
      input.type = "radio";
      input.name = "race-tree-decoder";
      input.value = name;
      input.checked = name === this.decoder;
      input.addEventListener("change", () => this.choose(name));
      this.choice.append(field("", input, LABELS[name]));
    }
  }

  draw() {
    const lane = this.trace.lanes.get(this.decoder);
    const most = lane.steps.length - 1;
    if (this.follow) this.step = Math.max(0, this.moment[this.decoder].shown - 1);
    for (const input of this.choice.querySelectorAll("input")) input.checked = input.value === this.decoder;
    this.slider.max = Math.max(1, most);
    this.slider.value = Math.max(1, this.step);
    this.slider.disabled = most < 1;
    this.previous.disabled = this.step <= 1;
    this.next.disabled = this.step >= most;
    setText(this.position, most < 1 ? "no step yet" : `step ${this.step} of ${most}`);
    const step = lane.steps[this.step];
    if (!step || !step.tree) {
      this.empty(nothingToDraw(this.decoder, step));
      return;
    }
    const key = `${this.decoder} ${this.step}`;
    if (key === this.drawn || !this.view) return;
    this.notice(this.plain || "");
    this.canvas.hidden = false;
    if (!this.canvas.clientWidth) return; // on a page behind another; drawn when that is left
    const began = performance.now();
    let layout = layOut(step);
    const look = this.look(lane, layout);
    layout = setApart(layout, look.apart);
    this.canvas.setAttribute("aria-label", stepSummary(step, layout, this.decoder));
    this.view.show(step, layout, look);
    this.draws += 1;
    this.drawnAt = performance.now();
    this.cost = this.drawnAt - began;
    if (this.drawn.split(" ")[0] !== this.decoder || !this.follow) setText(this.picked, "");
    this.drawn = key;
    this.drawnStep = { step, layout };
    setText(this.caption, describe(step));
    this.table.show(step, layout);
  }

  empty(text) {
    this.drawn = "";
    this.drawnStep = null;
    if (this.view) this.view.clear();
    this.canvas.hidden = true;
    setText(this.caption, "");
    setText(this.picked, "");
    this.table.clear();
    this.notice(text);
  }

  // Sizes that only grow while a race is shown, so that the picture does not jump; the page's colours.
  look(lane, layout) {
    const known = this.extents.get(lane.name) || { low: -SMALLEST, high: SMALLEST };
    known.low = Math.min(known.low, layout.low);
    known.high = Math.max(known.high, layout.high);
    this.extents.set(lane.name, known);
    const style = getComputedStyle(this.node);
    const colour = (name) => style.getPropertyValue(`--dart-${name}`).trim();
    const height = this.canvas.clientHeight;
    const rows = known.high - known.low + 2, room = height - AXIS;
    // So many more rows that the path's labels have their room where rows are narrow.
    const apart = Math.max(0, (LABEL_ROOM * rows - GAP * room) / (room - 2 * LABEL_ROOM));
    return {
      low: known.low - apart,
      high: known.high + apart,
      apart,
      depth: lane.depth + 1,
      height,
      width: this.canvas.clientWidth,
      pitch: room / (rows + 2 * apart), // pixels between two rows
      revision: lane.name,
      font: style.fontFamily,
      mono: style.getPropertyValue("--font-mono").trim() || "monospace",
      colours: {
        text: colour("text"), soft: colour("soft"), panel: colour("panel"), line: colour("line"),
        grid: colour("sunk"), faint: colour("edge"), accepted: colour("accepted"),
        ngram: colour("search"), bonus: colour("verify"), rejected: colour("rejected"),
        mismatch: colour("mismatch"),
      },
    };
  }

  // A click on a node: its path as text, and what is known of it.
  pick(node) {
    if (!this.drawnStep) return;
    const { step, layout } = this.drawnStep;
    const { tree } = step;
    const isBonus = node === "bonus";
    const path = pathTo(tree.parents, isBonus ? layout.bonus.parent : node);
    const text = path.map((each) => tree.texts[each]).join("") + (isBonus ? layout.bonus.text : "");
    const facts = isBonus ? "bonus: the target\u2019s own token"
      : [...nodeFacts(tree, layout, node).slice(1).map((fact) => fact.join(" ")), fate(tree, layout, node)].join(" \u00b7 ");
    this.picked.replaceChildren(make("b", "", quoted(text)), make("span", "", facts));
  }
}

function legend() {
  const node = make("div", "race-legend race-tree-legend");
  for (const [kind, text] of [
    ["root", "root"], ["accepted", "accepted"], ["bonus", "bonus: the target\u2019s own"],
    ["rejected", "rejected"], ["unreached", "not reached"], ["ngram", "supported by an n-gram"],
  ]) {
    const item = make("span", "race-key");
    item.append(make("i", "race-mark " + kind), make("span", "", text));
    node.append(item);
  }
  return node;
}

function nothingToDraw(decoder, step) {
  if (decoder === "baseline") return "The Baseline drafts nothing: every step is one token, and there is no tree.";
  if (!step || step.number === 0) return "The first tree comes with the step after the prefill.";
  return "Nothing was drafted in this step.";
}

function describe(step) {
  const parts = [
    `${step.tree.ids.length - 1} drafted, ${step.accept} accepted${step.tokens.length > step.accept ? " + 1 bonus" : ""}`,
    stepTimes(step),
  ];
  return parts.filter(Boolean).join(" \u00b7 ");
}
