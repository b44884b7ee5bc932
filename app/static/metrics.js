// The numbers of one run. `value` as views.metrics makes it.
import { Bars } from "./bars.js";
import { fixed, make, speedText } from "./dom.js";
import { coalesced } from "./frames.js";
import { Split } from "./split.js";

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
const bars = new Bars(9);
histogram.append(make("div", "dart-heading", "Accepted draft tokens per step"), bars.node);

const time = make("div", "dart-block");
const split = new Split([
  ["draft", "draft"], ["search", "search"], ["verify", "verify"], ["other", "outside"],
]);
time.append(make("div", "dart-heading", "Where the time goes"), split.bar, split.keys);
const fine = make("div", "dart-fine");
const note = make("div", "dart-why");
note.hidden = true;
root.append(big, note, histogram, time, fine);

function render(value) {
  const v = value || {};
  tiles.speed.textContent = speedText(v.speed);
  tiles.tau.textContent = fixed(v.tau, 2);
  tiles.tokens.textContent = fixed(v.tokens, 0);
  tiles.steps.textContent = fixed(v.steps, 0);
  root.dataset.state = v.state || "idle";

  const counts = v.histogram || [];
  bars.show(counts, {
    most: Math.max(1, ...counts),
    words: (count) => (count ? String(count) : ""),
    summary: counts.length
      ? counts.map((count, i) => `${i} accepted: ${count} steps`).join(", ") : "no steps yet",
  });
  split.show(v.seconds || {});

  const words = [];
  if (v.prefill !== null && v.prefill !== undefined) words.push(`prefill ${(1000 * v.prefill).toFixed(0)} ms`);
  if (v.overhead !== null && v.overhead !== undefined) words.push(`ui overhead ${(100 * v.overhead).toFixed(1)}%`);
  fine.textContent = words.length ? words.join(" \u00b7 ") : "Every speed is by the decoder\u2019s own clock.";
  fine.title = "ui overhead: the part of the wall time that the decoder\u2019s clock does not hold";
  note.textContent = v.note || "";
  note.hidden = !v.note;
}

render(props.value);
watch("value", coalesced(() => render(props.value)));
