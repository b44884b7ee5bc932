// A row of upright bars with a number above and a label below each.
import { make, setText } from "./dom.js";

const TALLEST = 44; // pixels

export class Bars {
  // least: bars that are there from the beginning, so that the row does not jump while it fills
  constructor(least, firstLabel = 0) {
    this.least = least;
    this.firstLabel = firstLabel;
    this.node = make("div", "dart-bars");
    this.node.setAttribute("role", "img");
  }

  // values: numbers, null where nothing is known; words: (value, label) -> text above the bar
  show(values, { most, words, summary }) {
    const count = Math.max(this.least, values.length);
    while (this.node.children.length > count) this.node.lastChild.remove();
    while (this.node.children.length < count) {
      const bar = make("div", "dart-bar");
      const label = String(this.node.children.length + this.firstLabel);
      bar.append(make("span", "dart-bar-count"), make("i"), make("span", "dart-bar-label", label));
      this.node.append(bar);
    }
    for (let i = 0; i < count; i += 1) {
      const [above, bar] = this.node.children[i].children;
      const value = values[i] || 0;
      setText(above, values[i] === undefined || values[i] === null ? "" : words(value));
      bar.className = value ? "" : "none";
      bar.style.height = value ? `${Math.max(3, (TALLEST * value) / most)}px` : "1px";
    }
    this.node.setAttribute("aria-label", summary);
  }
}
