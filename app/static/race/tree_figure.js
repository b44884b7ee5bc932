// A laid-out tree as Plotly's traces. Plotly reads a few tags in its labels, so all text is escaped.
import { fate, isSupported, nodeFacts } from "./tree_words.js";
import { quoted, shortened, visible } from "./tokens.js";

const LABEL = 12; // characters
const CHARACTER = 7.6; // pixels across
const BETWEEN = 5; // pixels between two labels
const CURVE = Array.from({ length: 13 }, (_, i) => i / 12);
const ROOM = { width: 84, height: 9.5 }; // pixels a small label needs

export function escaped(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

// Pixels across; grows with the draft probability, but not into the next row.
export function nodeSize(tree, node, pitch) {
  const p = tree.draft ? tree.draft[node] : 0.25;
  return Math.min(6 + 7 * Math.sqrt(Math.max(0, Math.min(1, p))), Math.max(5, 1.15 * pitch));
}

export function hoverText(tree, layout, node) {
  const facts = nodeFacts(tree, layout, node)
    .map(([name, value]) => `${name}  <b>${escaped(shortened(value, 60))}</b>`);
  return [...facts, escaped(shortened(fate(tree, layout, node), 110))].join("<br>");
}

// Edges as soft curves, all of one kind in one trace.
function edges(pairs) {
  const x = [], y = [];
  for (const [from, to] of pairs) {
    for (const u of CURVE) {
      x.push(from.x + (to.x - from.x) * u);
      y.push(from.y + (to.y - from.y) * u * u * (3 - 2 * u));
    }
    x.push(null);
    y.push(null);
  }
  return { x, y, mode: "lines", type: "scatter", hoverinfo: "skip" };
}

// Labels are traces of their own: Plotly loses some where a trace holds empty ones.
function labels(places, across, most, position, font) {
  return {
    x: places.map(({ x }) => x),
    y: places.map(({ y }) => y),
    type: "scatter",
    mode: "markers+text",
    marker: { size: across, opacity: 0 }, // only keeps the text off the node
    text: places.map(({ text }) => escaped(shortened(visible(text), most))),
    textposition: position,
    textfont: font,
    cliponaxis: false,
    hoverinfo: "skip",
  };
}

// step with a tree -> {data, layout}; look: as TreePanel.look gives it
export function figure(step, layout, look) {
  const { tree } = step;
  const { colours, pitch } = look;
  const { bonus, state } = layout;
  const at = (node) => ({ x: layout.x[node], y: layout.y[node], text: tree.texts[node] });
  const of = (...states) => state.map((_, node) => node).filter((node) => states.includes(state[node]));
  const edgesTo = (nodes) => edges(nodes.map((node) => [at(tree.parents[node]), at(node)]));
  const marks = (nodes, { size, fill, edge, opacity = 1 }) => ({
    x: nodes.map((node) => layout.x[node]),
    y: nodes.map((node) => layout.y[node]),
    customdata: nodes,
    type: "scatter",
    mode: "markers",
    hoverinfo: "text",
    hovertext: nodes.map((node) => hoverText(tree, layout, node)),
    marker: {
      size: nodes.map(size),
      symbol: nodes.map((node) => (isSupported(tree, node) ? "diamond" : "circle")
        + (state[node] === "rejected" ? "-x" : "")), // told from "unreached" without colour
      color: fill,
      opacity,
      line: {
        color: nodes.map((node) => (isSupported(tree, node) ? colours.ngram : edge)),
        width: nodes.map((node) => (isSupported(tree, node) ? 2.2 : 1.4)),
      },
    },
  });
  const small = (node) => nodeSize(tree, node, pitch);
  const crossed = (node) => Math.max(small(node), Math.min(9, pitch)); // or the cross is a blot
  const isParent = new Set(tree.parents);
  const column = look.width / (look.depth + 1);
  const hasRoom = pitch >= ROOM.height && column >= ROOM.width;
  // On the path, narrow columns share: every other label goes below the line.
  const isNarrow = column < 0.8 * ROOM.width;
  const onPath = [...of("root", "accepted").map(at), ...(bonus ? [bonus] : [])];
  const fitting = Math.max(2, Math.min(LABEL, Math.floor(((isNarrow ? 2 : 1) * column - BETWEEN) / CHARACTER)));
  const named = hasRoom ? of("unreached", "rejected").filter((node) => !isParent.has(node)) : [];
  const data = [
    { ...edgesTo(of("unreached", "rejected")), line: { color: colours.faint, width: 1 } },
    { ...edgesTo(of("accepted")), line: { color: colours.accepted, width: 4 } },
    {
      ...edges(bonus ? [[at(bonus.parent), bonus]] : []),
      line: { color: colours.bonus, width: 2, dash: "dot" },
    },
    marks(of("unreached"), { size: small, fill: colours.panel, edge: colours.rejected, opacity: 0.8 }),
    marks(of("rejected"), { size: crossed, fill: colours.panel, edge: colours.mismatch }),
    marks(of("accepted"), { size: () => 15, fill: colours.accepted, edge: colours.panel }),
    marks(of("root"), { size: () => 15, fill: colours.text, edge: colours.panel }),
    {
      x: bonus ? [bonus.x] : [],
      y: bonus ? [bonus.y] : [],
      type: "scatter",
      mode: "markers",
      customdata: ["bonus"],
      hoverinfo: "text",
      hovertext: bonus
        ? [`token  <b>${escaped(shortened(`${quoted(bonus.text)} (${bonus.id})`, 60))}</b><br>`
          + "bonus: the target\u2019s own token after the accepted path"] : [],
      marker: { size: 14, symbol: "square", color: colours.bonus, line: { color: colours.panel, width: 1.4 } },
    },
    labels(named.map(at), 11, LABEL, "middle right", { size: 10.5, color: colours.soft, family: look.mono }),
    labels(
      onPath, 15, fitting,
      onPath.map((_, i) => (isNarrow && i % 2 ? "bottom center" : "top center")),
      { size: 12.5, color: colours.text, family: look.mono },
    ),
  ];
  return {
    data,
    layout: {
      uirevision: look.revision, // keeps a zoom while steps come
      showlegend: false,
      dragmode: "pan",
      hovermode: "closest",
      hoverdistance: 14,
      margin: { l: 8, r: 8, t: 8, b: 28 },
      paper_bgcolor: "transparent",
      plot_bgcolor: "transparent",
      font: { family: look.font, size: 12, color: colours.text },
      hoverlabel: {
        align: "left", bgcolor: colours.panel, bordercolor: colours.line,
        font: { family: look.font, size: 12.5, color: colours.text },
      },
      xaxis: {
        range: [-0.35, look.depth + 0.6], dtick: 1, zeroline: false, showgrid: true,
        gridcolor: colours.grid, tickfont: { color: colours.soft, size: 11 }, fixedrange: false,
        tickvals: Array.from({ length: look.depth + 1 }, (_, depth) => depth),
        ticktext: Array.from({ length: look.depth + 1 }, (_, depth) => (depth ? `+${depth}` : "root")),
      },
      yaxis: { range: [look.low - 0.8, look.high + 1.2], visible: false, fixedrange: false },
    },
  };
}
