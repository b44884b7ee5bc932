// One bar per decoder on one axis of busy time: how long each took, and how far it is.
import { make, plural, setText } from "../dom.js";
import { LABELS } from "./tokens.js";

export class Lanes {
  constructor() {
    this.node = make("div", "race-lanes");
    this.rows = new Map();
    this.axis = make("div", "race-axis");
    this.axis.setAttribute("aria-hidden", "true");
    this.step = 0;
    this.end = 0;
  }

  clear() {
    this.node.replaceChildren();
    this.rows.clear();
    this.step = 0;
  }

  show(trace, moment) {
    if (!this.rows.size) this.build(trace.lanes.keys());
    this.scale(trace.duration("busy"));
    for (const [name, row] of this.rows) {
      const { figures, ended, lane } = moment[name];
      const share = (seconds) => `${(100 * seconds) / this.end}%`;
      row.prefill.style.width = share(figures.prefill);
      row.bar.style.width = share(Math.max(0, figures.busy - figures.prefill));
      row.track.style.setProperty("--end", share(figures.busy));
      row.node.dataset.state = ended ? (lane.end.reason === "error" ? "failed" : "ended") : "running";
      const mark = ended ? (lane.end.reason === "error" ? " \u2717" : " \u2713") : "";
      setText(row.time, figures.busy ? `${figures.busy.toFixed(2)} s${mark}` : "");
      row.track.setAttribute("aria-label", `${LABELS[name]}: ${plural(figures.tokens, "token")} in `
        + `${figures.busy.toFixed(2)} seconds${ended ? ", ended" : ""}`);
    }
  }

  build(names) {
    for (const name of names) {
      const node = make("div", "race-lane");
      node.dataset.decoder = name;
      const track = make("div", "race-track");
      track.setAttribute("role", "img");
      const prefill = make("i", "race-lane-prefill"), bar = make("i", "race-lane-bar");
      prefill.title = "reading the prompt (prefill)";
      const time = make("span", "race-lane-time");
      track.append(prefill, bar, time);
      node.append(make("span", "race-lane-name", LABELS[name]), track);
      this.node.append(node);
      this.rows.set(name, { node, track, prefill, bar, time });
    }
    this.node.append(this.axis);
  }

  // An axis in round steps, so that it does not crawl along while the race runs.
  scale(seconds) {
    const target = Math.max(seconds, 0.001) * 1.1; // room for the time behind the longest bar
    const rough = target / 5;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((size) => size >= rough);
    const end = Math.ceil(target / step) * step;
    if (step === this.step && end === this.end) return;
    this.step = step;
    this.end = end;
    this.axis.replaceChildren();
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    for (let i = 0; i * step <= end * 1.0001; i += 1) {
      const tick = make("span", "", `${(i * step).toFixed(digits)}${i * step > end - step / 2 ? " s" : ""}`);
      tick.style.left = `${(100 * i * step) / end}%`;
      this.axis.append(tick);
    }
  }
}
