// One bar cut into the stages of a step, with a key that says each stage's share.
import { DASH, make, percent, setText } from "./dom.js";

export class Split {
  // stages: [name, label] pairs; the name chooses the colour
  constructor(stages) {
    this.stages = stages;
    this.bar = make("div", "dart-split");
    this.bar.setAttribute("role", "img");
    this.keys = make("div", "dart-split-keys");
    this.parts = {};
    this.shares = {};
    for (const [name, label] of stages) {
      this.parts[name] = make("span", "dart-stage-" + name);
      this.bar.append(this.parts[name]);
      const key = make("span", "dart-stage-key dart-stage-" + name);
      this.shares[name] = make("b", "", DASH);
      key.append(make("i"), make("span", "", label + " "), this.shares[name]);
      this.keys.append(key);
    }
  }

  // seconds: by stage
  show(seconds) {
    const total = this.stages.reduce((sum, [name]) => sum + (seconds[name] || 0), 0);
    for (const [name] of this.stages) {
      const share = total > 0 ? (seconds[name] || 0) / total : 0;
      this.parts[name].style.flexGrow = String(share);
      setText(this.shares[name], total > 0 ? percent(share) : DASH);
    }
    this.bar.setAttribute("aria-label", total > 0
      ? this.stages.map(([name, label]) => `${label} ${this.shares[name].textContent}`).join(", ")
      : "no time spent yet");
  }
}
