// Where each node of a draft tree stands: x is its depth; y follows the order of the leaves, with
// the accepted path on one straight line at y = 0 and everything else above or below it. Pure.

export const GAP = 1.6; // rows between the path and its neighbours, at the least

// step: a line of the trace with a tree
// returns {x, y, state, depth, low, high, bonus}; state by node:
//   root | accepted | rejected (its parent was accepted, the target chose another token)
//   | unreached (its parent was not accepted)
// bonus: {x, y, id, text, parent}, or null where the text ended inside the path
export function layOut(step) {
  const { tree } = step;
  const count = tree.parents.length;
  const children = Array.from({ length: count }, () => []);
  const x = [0];
  for (let node = 1; node < count; node += 1) {
    children[tree.parents[node]].push(node);
    x.push(x[tree.parents[node]] + 1);
  }
  const onPath = new Set(tree.path);
  const state = tree.parents.map((parent, node) => (node === 0 ? "root"
    : onPath.has(node) ? "accepted" : onPath.has(parent) ? "rejected" : "unreached"));

  const y = new Array(count).fill(0);
  // The outermost y taken at each depth, on both sides of the path.
  const taken = { "-1": [], 1: [] };
  // From the path's end to its root: what hangs on deeper nodes stands nearer to the line, so that
  // no two edges cross.
  for (const node of [...tree.path].reverse()) {
    const hanging = children[node].filter((child) => !onPath.has(child));
    let side = extent(taken["1"]) <= extent(taken["-1"]) ? 1 : -1;
    for (const child of hanging) {
      attach(child, side, { children, x, y, taken: taken[side] });
      side = -side;
    }
  }
  const last = tree.path[tree.path.length - 1];
  const hasBonus = step.tokens.length > tree.path.length - 1;
  return {
    x, y, state,
    depth: Math.max(...x, hasBonus ? x[last] + 1 : 0),
    low: Math.min(...y),
    high: Math.max(...y),
    bonus: hasBonus ? { x: x[last] + 1, y: 0, ...bonusToken(step), parent: last } : null,
  };
}

// The same with `rows` more between the path and everything beside it.
export function setApart(layout, rows) {
  return { ...layout, y: layout.y.map((y) => y + Math.sign(y) * rows) };
}

function bonusToken({ tree, tokens }) {
  const last = tree.path[tree.path.length - 1];
  const [id, text] = tokens[tokens.length - 1];
  // A tree's text is the token's own; a step's may lack what only completes a character.
  return { id, text: tree.chosen_texts ? tree.chosen_texts[last] : text };
}

function extent(taken) {
  return taken.reduce((most, value) => Math.max(most, value || 0), 0);
}

// A subtree on its own, its parts as close together as they fit.
// returns {at: node -> y, low, high: outermost y by depth}
function arrange(node, children, x) {
  const depth = x[node];
  const all = { at: new Map(), low: [], high: [] };
  for (const child of children[node]) {
    const part = arrange(child, children, x);
    let shift = 0;
    part.low.forEach((low, d) => {
      if (all.high[d] !== undefined) shift = Math.max(shift, all.high[d] + 1 - low);
    });
    for (const [each, y] of part.at) all.at.set(each, y + shift);
    part.low.forEach((low, d) => { all.low[d] = Math.min(all.low[d] ?? Infinity, low + shift); });
    part.high.forEach((high, d) => { all.high[d] = Math.max(all.high[d] ?? -Infinity, high + shift); });
  }
  const ys = children[node].map((child) => all.at.get(child));
  const own = ys.length ? (ys[0] + ys[ys.length - 1]) / 2 : 0;
  all.at.set(node, own);
  all.low[depth] = own;
  all.high[depth] = own;
  return all;
}

// Puts a subtree as near to the path as what is there already lets it.
function attach(top, side, { children, x, y, taken }) {
  const part = arrange(top, children, x);
  let offset = -Infinity;
  part.low.forEach((low, depth) => {
    offset = Math.max(offset, (taken[depth] === undefined ? GAP : taken[depth] + 1) - low);
  });
  for (const [node, at] of part.at) y[node] = side * (offset + at);
  part.high.forEach((high, depth) => { taken[depth] = Math.max(taken[depth] ?? 0, offset + high); });
}

export function pathTo(parents, node) {
  const path = [];
  for (let at = node; at >= 0; at = parents[at]) path.unshift(at);
  return path;
}
