// The numbers of one run. `value` as views.metrics makes it.
const STAGES = [["draft", "draft"], ["search", "search"], ["verify", "verify"], ["other", "outside"]];

function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

const root = element.querySelector(".dart-metrics") || element;
root.replaceChildren();

const big = make("div", "dart-tiles");
const tiles = {};
for (const [name, label, hint] of [
  ["speed", "tokens/s", "Tokens after the first one over the decoder\u2019s own time; the prefill is apart."],
  ["tau", "tokens/forward, \u03c4", "Mean tokens per target forward, the bonus token included."],
  ["tokens", "tokens", "New tokens so far."],
  ["steps", "steps", "Target forwards after the prefill."],
]) {
  const tile = make("div", "dart-tile dart-tile-" + name);
  tile.title = hint;
  tiles[name] = make("div", "dart-number", "\u2013");
  tiles[name].dataset.metric = name;
  tile.append(tiles[name], make("div", "dart-caption", label));
  big.append(tile);
}

const histogram = make("div", "dart-block");
const bars = make("div", "dart-bars");
bars.setAttribute("role", "img");
histogram.append(make("div", "dart-heading", "Accepted draft tokens per step"), bars);

const time = make("div", "dart-block");
const split = make("div", "dart-split");
split.setAttribute("role", "img");
const keys = make("div", "dart-split-keys");
const parts = {}, labels = {};
for (const [name, label] of STAGES) {
  parts[name] = make("span", "dart-stage-" + name);
  split.append(parts[name]);
  const key = make("span", "dart-stage-key dart-stage-" + name);
  labels[name] = make("b", "", "\u2013");
  key.append(make("i"), make("span", "", label + " "), labels[name]);
  keys.append(key);
}
time.append(make("div", "dart-heading", "Where the time goes"), split, keys);
const fine = make("div", "dart-fine");
const note = make("div", "dart-why");
note.hidden = true;
root.append(big, note, histogram, time, fine);

function render(value) {
  const v = value || {};
  const number = (x, digits) => (x === null || x === undefined ? "\u2013" : x.toFixed(digits));
  tiles.speed.textContent = number(v.speed, v.speed >= 100 ? 0 : 1);
  tiles.tau.textContent = number(v.tau, 2);
  tiles.tokens.textContent = number(v.tokens, 0);
  tiles.steps.textContent = number(v.steps, 0);
  root.dataset.state = v.state || "idle";

  const counts = v.histogram && v.histogram.length ? v.histogram : [];
  const shown = Math.max(9, counts.length);
  const most = Math.max(1, ...counts);
  while (bars.children.length > shown) bars.lastChild.remove();
  while (bars.children.length < shown) {
    const bar = make("div", "dart-bar");
    bar.append(make("span", "dart-bar-count"), make("i"), make("span", "dart-bar-label", String(bars.children.length)));
    bars.append(bar);
  }
  for (let i = 0; i < shown; i += 1) {
    const count = counts[i] || 0;
    bars.children[i].children[0].textContent = count ? String(count) : "";
    bars.children[i].children[1].className = count ? "" : "none";
    bars.children[i].children[1].style.height = count ? Math.max(3, (44 * count) / most) + "px" : "1px";
  }
  bars.setAttribute("aria-label", counts.length
    ? counts.map((count, i) => `${i} accepted: ${count} steps`).join(", ") : "no steps yet");

  const seconds = v.seconds || {};
  const total = Object.values(seconds).reduce((a, b) => a + b, 0);
  for (const [name] of STAGES) {
    const share = total > 0 ? (seconds[name] || 0) / total : 0;
    parts[name].style.flexGrow = String(share);
    labels[name].textContent = total > 0 ? (100 * share).toFixed(share < 0.1 ? 1 : 0) + "%" : "\u2013";
  }
  split.setAttribute("aria-label", total > 0
    ? STAGES.map(([name, label]) => `${label} ${labels[name].textContent}`).join(", ") : "no time spent yet");
  const words = [];
  if (v.prefill !== null && v.prefill !== undefined) words.push(`prefill ${(1000 * v.prefill).toFixed(0)} ms`);
  if (v.overhead !== null && v.overhead !== undefined) words.push(`ui overhead ${(100 * v.overhead).toFixed(1)}%`);
  fine.textContent = words.length ? words.join(" \u00b7 ") : "Every speed is by the decoder\u2019s own clock.";
  fine.title = "ui overhead: the part of the wall time that the decoder\u2019s clock does not hold";
  note.textContent = v.note || "";
  note.hidden = !v.note;
}

// Frames that come faster than the browser can draw are drawn as one, or a slow one would fall
// behind. The timer is for a tab in the background, which draws nothing.
let waiting = false;
function draw() {
  if (!waiting) return;
  waiting = false;
  render(props.value);
}
function soon() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(draw);
  setTimeout(draw, 200);
}

render(props.value);
watch("value", soon);
