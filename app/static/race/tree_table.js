// The nodes of a tree as a table: what the picture shows, for those who cannot see or point at it.
import { make } from "../dom.js";
import { fate, significant } from "./tree_words.js";
import { quoted } from "./tokens.js";

const COLUMNS = [
  "token", "depth", "draft p", "n-gram p", "matched", "p in this text", "matched", "score", "rank", "what became of it",
];

export class TreeTable {
  constructor(onPick) {
    this.onPick = onPick;
    this.node = make("details", "race-nodes");
    this.body = make("div", "race-nodes-scroll");
    this.node.append(make("summary", "", "The nodes as a table"), this.body);
    this.node.addEventListener("toggle", () => this.fill());
  }

  show(step, layout) {
    this.shown = { step, layout };
    this.fill();
  }

  clear() {
    this.shown = null;
    this.body.replaceChildren();
  }

  // Only an open table is worth the work.
  fill() {
    if (!this.node.open || !this.shown) return;
    const { step: { tree }, layout } = this.shown;
    const table = make("table");
    const head = make("tr");
    for (const title of COLUMNS) {
      const cell = make("th", "", title);
      cell.scope = "col";
      head.append(cell);
    }
    table.append(make("thead"), make("tbody"));
    table.tHead.append(head);
    tree.ids.forEach((_, node) => {
      const row = make("tr", layout.state[node]);
      const token = make("td");
      const pick = make("button", "race-node", quoted(tree.texts[node]));
      pick.type = "button";
      pick.addEventListener("click", () => this.onPick(node));
      pick.style.marginLeft = `${layout.x[node]}ch`;
      token.append(pick);
      const drafted = node > 0;
      const isOpened = Boolean(tree.ranks) && tree.ranks[node] < 0;
      const cells = [
        layout.x[node],
        drafted && !isOpened && tree.draft ? significant(tree.draft[node]) : "",
        ...match(tree.ngram, tree.matched, node),
        ...match(tree.context, tree.context_matched, node),
        drafted && tree.scores ? significant(tree.scores[node]) : "",
        drafted && !isOpened && tree.ranks ? tree.ranks[node] + 1 : "",
        fate(tree, layout, node),
      ];
      row.append(token, ...cells.map((text) => make("td", "", String(text))));
      table.tBodies[0].append(row);
    });
    this.body.replaceChildren(table);
  }
}

// Cells of an n-gram's probability and matched length; empty where there is none.
function match(probabilities, matched, node) {
  if (node === 0 || !probabilities || !(probabilities[node] > 0)) return ["", ""];
  return [significant(probabilities[node]), matched ? matched[node] : ""];
}
