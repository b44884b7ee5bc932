// One decoder's text: a span per token, marked by its source. Spans are only ever appended, and
// hidden again where a replay goes back; nothing that is there is built twice.
import { make } from "../dom.js";
import { SOURCES } from "./tokens.js";

const FENCE = /^ {0,3}`{3}/;

// Tells code from prose line by line, piece by piece. A line that turns out to be a fence has its
// pieces marked afterwards.
class Fences {
  constructor() {
    this.line = ""; // the line so far
    this.nodes = []; // and what shows it
    this.inCode = false;
  }

  take(part, node) {
    this.line += part;
    this.nodes.push(node);
    if (this.inCode) node.classList.add("code");
    if (FENCE.test(this.line)) for (const shown of this.nodes) shown.classList.add("code", "fence");
    if (!part.endsWith("\n")) return;
    if (FENCE.test(this.line)) this.inCode = !this.inCode;
    this.line = "";
    this.nodes = [];
  }
}

export class TokenText {
  constructor(node, onPick) {
    this.node = node;
    this.spans = [];
    this.shown = 0;
    this.picked = [];
    this.fences = new Fences();
    this.pinned = true; // keep the end in view, until the reader scrolls up
    node.addEventListener("scroll", () => {
      this.pinned = node.scrollHeight - node.scrollTop - node.clientHeight < 40;
    }, { passive: true });
    // One listener for all tokens; a title is written when it is asked for.
    node.addEventListener("mouseover", (event) => {
      const span = event.target.closest("[data-step]");
      if (span && !span.title) {
        const step = span.dataset.step === "0" ? "prefill" : `step ${span.dataset.step}`;
        span.title = `${SOURCES[span.dataset.source]} \u00b7 ${step}`;
      }
    });
    node.addEventListener("click", (event) => {
      const span = event.target.closest("[data-step]");
      if (span && !String(getSelection())) onPick(Number(span.dataset.step));
    });
  }

  clear() {
    this.node.replaceChildren();
    this.spans = [];
    this.shown = 0;
    this.picked = [];
    this.fences = new Fences();
    this.pinned = true;
  }

  // Show the first `count` of these pieces.
  show(pieces, count) {
    if (count === this.shown) return;
    for (let i = count; i < this.shown; i += 1) this.spans[i].hidden = true;
    for (let i = this.shown; i < Math.min(count, this.spans.length); i += 1) this.spans[i].hidden = false;
    if (count > this.spans.length) {
      const fresh = document.createDocumentFragment();
      for (let i = this.spans.length; i < count; i += 1) fresh.append(this.append(pieces[i]));
      this.node.append(fresh);
    }
    this.shown = count;
    if (this.pinned) this.node.scrollTop = this.node.scrollHeight;
  }

  append(piece) {
    const span = make("span", piece.source);
    span.dataset.step = piece.step;
    span.dataset.source = piece.source;
    const parts = piece.text.split(/(?<=\n)/);
    if (parts.length === 1) {
      span.textContent = piece.text;
      this.fences.take(piece.text, span);
    } else {
      // Prose and code may meet inside a token.
      for (const part of parts) this.fences.take(part, span.appendChild(make("span", "", part)));
    }
    this.spans.push(span);
    return span;
  }

  // Mark the tokens of one step.
  pick(pieces, step) {
    for (const span of this.picked) span.classList.remove("picked");
    this.picked = this.spans.filter((_, i) => pieces[i].step === step);
    for (const span of this.picked) span.classList.add("picked");
  }
}
