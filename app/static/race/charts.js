// Beside the tree, for the same decoder: how many drafted tokens its steps accepted, how the
// chances fall with depth, and where its time went.
import { Bars } from "../bars.js";
import { make, plural, setText } from "../dom.js";
import { Split } from "../split.js";
import { LABELS } from "./tokens.js";

const STAGES = [["draft", "draft"], ["search", "search"], ["verify", "verify"], ["other", "other"]];

// Counts over a lane's first steps; goes forward step by step and begins again to go back.
class Tally {
  constructor(lane) {
    this.lane = lane;
    this.reset();
  }

  reset() {
    this.seen = 0;
    this.histogram = [];
    this.reached = []; // by depth - 1: steps whose tree was so deep
    this.accepted = []; // by depth - 1: of those, steps that accepted so many
  }

  to(shown) {
    if (shown < this.seen) this.reset();
    for (; this.seen < shown; this.seen += 1) {
      const step = this.lane.steps[this.seen];
      if (step.seconds.prefill !== undefined) continue;
      this.histogram[step.accept] = (this.histogram[step.accept] || 0) + 1;
      for (let d = 0; d < step.depth; d += 1) this.reached[d] = (this.reached[d] || 0) + 1;
      for (let d = 0; d < step.accept; d += 1) this.accepted[d] = (this.accepted[d] || 0) + 1;
    }
    return this;
  }
}

function chart(title, ...parts) {
  const node = make("div");
  node.append(make("div", "dart-heading", title), ...parts);
  return node;
}

export class Charts {
  constructor() {
    this.node = make("section", "race-card race-charts");
    this.title = make("h3", "", "All its steps");
    const head = make("div", "race-card-head");
    head.append(this.title);
    this.histogram = new Bars(9);
    this.histogram.node.id = "accept-histogram";
    this.rates = new Bars(8, 1);
    this.rates.node.id = "accept-by-depth";
    this.split = new Split(STAGES);
    this.split.keys.title = "other: around the steps, in no decoder\u2019s clock";
    this.fine = make("p", "dart-fine");
    const row = make("div", "race-charts-row");
    row.append(
      chart("Steps by accepted draft tokens", this.histogram.node),
      chart("Accepted so deep, % of the steps that drafted so deep", this.rates.node),
      chart("Where the time goes", this.split.bar, this.split.keys, this.fine),
    );
    this.node.append(head, row);
  }

  show(now) {
    if (!this.tally || this.tally.lane !== now.lane) this.tally = new Tally(now.lane);
    const { histogram, reached, accepted } = this.tally.to(now.shown);
    const counts = Array.from(histogram, (count) => count || 0);
    const rates = reached.map((whole, depth) => (accepted[depth] || 0) / whole);
    setText(this.title, `${LABELS[now.lane.name]}, ${plural(now.figures.steps, "step")}`);
    this.histogram.show(counts, {
      most: Math.max(1, ...counts),
      words: (count) => (count ? String(count) : ""),
      summary: counts.length
        ? counts.map((count, i) => `${i} accepted: ${plural(count, "step")}`).join(", ") : "no steps yet",
    });
    this.rates.show(rates, {
      most: 1,
      words: (rate) => (100 * rate).toFixed(0),
      summary: rates.length
        ? rates.map((rate, i) => `depth ${i + 1}: ${(100 * rate).toFixed(0)}%`).join(", ") : "nothing drafted",
    });
    const { figures } = now;
    this.split.show(figures.seconds);
    const { draft, search, verify } = figures.seconds;
    setText(this.fine, figures.steps
      ? `${(1000 * (draft + search + verify) / figures.steps).toFixed(1)} ms a step \u00b7 prefill ${(1000 * figures.prefill).toFixed(0)} ms apart` : "");
  }
}
