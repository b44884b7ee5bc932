// A step's tree in words: for the hover, the table and the screen reader. Plain text throughout.
import { fixed, plural } from "../dom.js";
import { LABELS, quoted } from "./tokens.js";

const FATES = {
  root: "root: the last token before this step",
  accepted: "accepted",
  rejected: "rejected",
  unreached: "not reached",
};

export function significant(number) {
  return number === null || number === undefined ? "\u2013" : String(Number(number.toPrecision(3)));
}

// What became of a node, and what the target chose instead.
export function fate(tree, layout, node) {
  const state = layout.state[node];
  if (state === "root" || state === "accepted") return FATES[state];
  if (!tree.chosen_texts) return FATES[state];
  const chosen = quoted(tree.chosen_texts[tree.parents[node]]);
  if (state === "rejected") return `${FATES.rejected}: the target chose ${chosen}`;
  return `${FATES.unreached}; there the target would choose ${chosen}`;
}

// [name, value] pairs of a node; what the decoder does not have is left out.
export function nodeFacts(tree, layout, node) {
  const facts = [["token", `${quoted(tree.texts[node])} (${tree.ids[node]})`]];
  if (node > 0) {
    const isOpened = Boolean(tree.ranks) && tree.ranks[node] < 0;
    if (tree.draft) {
      facts.push(["draft probability", isOpened ? "not among the head's candidates" : significant(tree.draft[node])]);
    }
    if (tree.ngram) facts.push(["n-gram probability", ngramWords(tree.ngram, tree.matched, node)]);
    if (tree.context) facts.push(["in this text", ngramWords(tree.context, tree.context_matched, node)]);
    if (tree.scores) facts.push(["score", significant(tree.scores[node])]);
    if (tree.ranks && !isOpened) facts.push(["rank", String(tree.ranks[node] + 1)]);
  }
  facts.push(["depth", String(layout.x[node])]);
  return facts;
}

function ngramWords(probabilities, matched, node) {
  if (!(probabilities[node] > 0)) return "none found";
  return `${significant(probabilities[node])}, ${plural(matched ? matched[node] : 0, "token")} matched`;
}

// Whether an n-gram led there: of the store, or of the text itself.
export function isSupported(tree, node) {
  if (node === 0) return false;
  return Boolean((tree.ngram && tree.ngram[node] > 0) || (tree.context && tree.context[node] > 0));
}

// One sentence that says what the picture shows.
export function stepSummary(step, layout, decoder) {
  const { tree } = step;
  const accepted = tree.path.slice(1).map((node) => quoted(tree.texts[node]));
  const parts = [
    `${LABELS[decoder]}, step ${step.number}: ${plural(tree.ids.length - 1, "token")} drafted`,
    accepted.length ? `${accepted.length} accepted: ${accepted.join(" ")}` : "none accepted",
  ];
  if (layout.bonus) parts.push(`the target added ${quoted(layout.bonus.text)}`);
  return parts.join("; ");
}

// Milliseconds of a step by stage, for those it has.
export function stepTimes(step) {
  const parts = ["draft", "search", "verify"]
    .filter((stage) => step.seconds[stage] !== undefined)
    .map((stage) => `${stage} ${fixed(1000 * step.seconds[stage], 1)}`);
  if (step.gap > 5e-5) parts.push(`other ${fixed(1000 * step.gap, 1)}`);
  return parts.length ? `${parts.join(" + ")} ms` : "";
}
