// One decoder's pane: name, badges, counters, text, and how it ended.
import { DASH, fixed, make, plural, setText, speedText } from "../dom.js";
import { TokenText } from "./text.js";
import { LABELS, quoted } from "./tokens.js";

const ENDS = {
  eos: "end of text", length: "length limit reached", stopped: "stopped", error: "failed",
};
const COUNTERS = [
  ["speed", "tokens/s", "Tokens after the first one over the decoder\u2019s own time; the prefill is apart."],
  ["tau", "\u03c4", "Mean tokens per target forward, the bonus token included."],
  ["tokens", "tokens", "New tokens so far."],
  ["steps", "steps", "Target forwards after the prefill."],
];

export class Pane {
  constructor(name, onPick) {
    this.name = name;
    this.node = make("section", "race-pane");
    this.node.dataset.decoder = name;
    this.node.setAttribute("aria-label", LABELS[name]);
    const head = make("header", "race-pane-head");
    this.speedup = make("span", "race-speedup");
    this.speedup.dataset.metric = "speedup";
    this.same = make("span", "race-same");
    head.append(make("h3", "", LABELS[name]), this.speedup, this.same);
    this.counters = make("div", "race-counters");
    this.counters.id = `metrics-${name}`;
    this.numbers = {};
    for (const [metric, label, hint] of COUNTERS) {
      const cell = make("div", `race-counter race-counter-${metric}`);
      cell.title = hint;
      this.numbers[metric] = make("span", "race-number");
      this.numbers[metric].dataset.metric = metric;
      cell.append(this.numbers[metric], make("span", "race-unit", label));
      this.counters.append(cell);
    }
    const body = make("div", "race-text");
    body.id = `pane-${name}`;
    body.tabIndex = 0;
    body.setAttribute("role", "region");
    body.setAttribute("aria-live", "off");
    body.setAttribute("aria-label", `${LABELS[name]}\u2019s text`);
    this.text = new TokenText(body, onPick);
    this.foot = make("footer", "race-pane-foot");
    this.node.append(head, this.counters, body, this.foot);
  }

  clear() {
    this.text.clear();
    for (const number of Object.values(this.numbers)) number.textContent = DASH;
    this.speedup.hidden = true;
    this.same.hidden = true;
    this.foot.textContent = "";
  }

  // now: this decoder's part of Trace.at; context: {settings, isReference, speedup, comparison}
  show(now, context) {
    const { figures } = now;
    this.text.show(now.lane.pieces, figures.tokens);
    setText(this.numbers.speed, speedText(figures.speed));
    setText(this.numbers.tau, fixed(figures.tau, 2));
    setText(this.numbers.tokens, String(figures.tokens));
    setText(this.numbers.steps, String(figures.steps));
    this.showBadges(context);
    const failed = now.ended && now.lane.end.reason === "error";
    this.node.dataset.state = now.ended ? (failed ? "failed" : "ended") : now.shown ? "decoding" : "prefill";
    setText(this.foot, this.footnote(now, context.settings));
  }

  showBadges({ isReference, speedup, comparison }) {
    setText(this.speedup, speedup === null ? "" : `\u00d7${speedup.toFixed(2)}`);
    this.speedup.hidden = speedup === null;
    this.speedup.classList.toggle("slower", speedup !== null && speedup < 1);
    this.speedup.title = "tokens/s over the Baseline\u2019s in this race";
    this.same.hidden = !isReference && !comparison;
    if (isReference) {
      setText(this.same, "reference");
      this.same.dataset.same = "reference";
    } else if (comparison) {
      setText(this.same, comparison.text);
      this.same.dataset.same = comparison.verdict;
    }
    this.same.title = comparison ? comparison.hint : "";
  }

  footnote(now, settings) {
    const parts = [];
    if (now.ended) {
      const { reason, error } = now.lane.end;
      parts.push(reason === "error" ? `Failed: ${error || "no reason was given"}` : ENDS[reason] || reason);
    } else {
      parts.push(now.shown ? "decoding" : "reading the prompt");
    }
    const why = whyNothingAccepted(now, settings);
    if (why) parts.push(why);
    return parts.join(" \u00b7 ");
  }
}

// A reason where no token is marked as drafted; empty where some are, or where it is too early.
function whyNothingAccepted({ lane, shown, ended, figures }, settings) {
  if (lane.name === "baseline") return "drafts nothing: one token a step, each the target\u2019s own";
  if (figures.accepted || figures.steps < (ended ? 1 : 4) || !shown) return "";
  if (!figures.drafted) return `all ${plural(figures.steps, "draft tree")} were empty: nothing was likely enough to draft`;
  const draws = settings.temperature > 0
    ? `; at temperature ${settings.temperature} it draws at random` : "";
  return `${plural(figures.drafted, "token")} drafted in ${plural(figures.steps, "step")}, `
    + `and the target chose another one every time${draws}`;
}

// The "same text" mark of a decoder against the reference.
// difference: of Difference.at; now, other: their parts of Trace.at
export function compared(difference, now, other, otherName) {
  const count = now.figures.tokens, otherCount = other.figures.tokens;
  const shared = Math.min(count, otherCount);
  if (!shared) return null;
  const label = LABELS[otherName];
  if (!difference.same) {
    const ours = now.lane.pieces[difference.position].text;
    const theirs = other.lane.pieces[difference.position].text;
    const at = `token ${difference.position + 1}`;
    return {
      verdict: "differs",
      text: `\u2260 ${at}: ${quoted(ours)}, not ${quoted(theirs)}`,
      hint: `The first ${plural(difference.position, "token")} are ${label}\u2019s; ${at} is not.`,
    };
  }
  if (now.ended && other.ended) {
    return {
      verdict: "same",
      text: count === otherCount ? "\u2713 same text" : `\u2713 same first ${plural(shared, "token")}`,
      hint: `Token for token the text of ${label}, as far as both went (${plural(shared, "token")}).`,
    };
  }
  return {
    verdict: "so-far",
    text: "same so far",
    hint: `All ${plural(shared, "token")} that both have are equal to ${label}\u2019s.`,
  };
}
