// The tree as a plain SVG drawing, for a server without Plotly.
import { fate, isSupported, nodeFacts } from "./tree_words.js";
import { nodeSize } from "./tree_figure.js";
import { quoted, shortened, visible } from "./tokens.js";

const SVG = "http://www.w3.org/2000/svg";

function shape(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

export class TreeDrawing {
  constructor(node, onPick) {
    this.node = node;
    node.addEventListener("click", (event) => {
      const mark = event.target.closest("[data-node]");
      if (mark) onPick(mark.dataset.node === "bonus" ? "bonus" : Number(mark.dataset.node));
    });
  }

  clear() {
    this.node.replaceChildren();
  }

  show(step, layout, look) {
    const { tree } = step;
    const { colours, height, width } = look;
    const px = (x) => 24 + (x * (width - 90)) / Math.max(1, look.depth);
    const py = (y) => ((look.high + 1 - y) * height) / (look.high - look.low + 2);
    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
    const edge = (from, to, colour, thick, dash) => {
      const [a, b, c, d] = [px(from.x), py(from.y), px(to.x), py(to.y)];
      const middle = (a + c) / 2;
      svg.append(shape("path", {
        d: `M${a} ${b}C${middle} ${b} ${middle} ${d} ${c} ${d}`, fill: "none", stroke: colour,
        "stroke-width": thick, ...(dash ? { "stroke-dasharray": "2 4" } : {}),
      }));
    };
    const at = (node) => ({ x: layout.x[node], y: layout.y[node] });
    const order = ["unreached", "rejected", "accepted", "root"];
    const sorted = layout.state.map((_, node) => node)
      .sort((a, b) => order.indexOf(layout.state[a]) - order.indexOf(layout.state[b]));
    for (const node of sorted) {
      if (node === 0) continue;
      const accepted = layout.state[node] === "accepted";
      edge(at(tree.parents[node]), at(node), accepted ? colours.accepted : colours.faint, accepted ? 4 : 1);
    }
    if (layout.bonus) edge(at(layout.bonus.parent), layout.bonus, colours.bonus, 2, true);
    const strong = { root: colours.text, accepted: colours.accepted };
    for (const node of sorted) {
      const state = layout.state[node];
      const mark = shape("circle", {
        cx: px(layout.x[node]), cy: py(layout.y[node]), "data-node": node,
        r: strong[state] ? 7 : nodeSize(tree, node, look.pitch) / 2,
        fill: strong[state] || colours.panel,
        stroke: isSupported(tree, node) ? colours.ngram
          : state === "rejected" ? colours.mismatch : strong[state] ? colours.panel : colours.rejected,
        "stroke-width": isSupported(tree, node) ? 2.2 : 1.4,
      });
      mark.append(shape("title", {}, [...nodeFacts(tree, layout, node).map((fact) => fact.join(": ")),
        fate(tree, layout, node)].join("\n")));
      svg.append(mark);
      if (strong[state]) this.label(svg, px(layout.x[node]), py(layout.y[node]), tree.texts[node], colours);
    }
    if (layout.bonus) {
      const mark = shape("rect", {
        x: px(layout.bonus.x) - 6, y: py(0) - 6, width: 12, height: 12, fill: colours.bonus, "data-node": "bonus",
      });
      mark.append(shape("title", {}, `bonus: ${quoted(layout.bonus.text)}`));
      svg.append(mark);
      this.label(svg, px(layout.bonus.x), py(0), layout.bonus.text, colours);
    }
    this.node.replaceChildren(svg);
  }

  label(svg, x, y, text, colours) {
    svg.append(shape("text", {
      x, y: y - 11, "text-anchor": "middle", "font-size": 12, fill: colours.text,
    }, shortened(visible(text), 12)));
  }
}
