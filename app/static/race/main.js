// The race page. `value`: {run, state, lines, note}, `lines` as in trace.js. Whatever is on show,
// the running race, a replay, a moment on the slider or an imported file, is drawn by one path: the
// trace up to time t.
import { button, field, make, percent, plural, setText, speedText } from "../dom.js";
import { coalesced } from "../frames.js";
import { Charts } from "./charts.js";
import { exportTrace, importTrace } from "./files.js";
import { Lanes } from "./lanes.js";
import { compared, Pane } from "./pane.js";
import { Player } from "./player.js";
import { LABELS } from "./tokens.js";
import { Difference, reference, Trace } from "./trace.js";
import { TreePanel } from "./tree_panel.js";

const STORE = "dart-colours"; // shared with the chat
const CHART_INTERVAL = 125; // milliseconds

const root = element.querySelector(".dart-race") || element;
root.replaceChildren();

// --- what is on show
let run = null;
let live = new Trace(); // the race this page is connected to
let opened = null; // an imported file, {trace, name}, instead
let trace = null; // the one of the two that the views were built for
let isBuilt = false; // whether it had its header then
let differences = new Map();
let announced = null;
let chartsAt = 0;
let drawnVersion = 0;
let paneDraws = 0;

// --- the parts of the page
const soon = coalesced(draw);
const player = new Player(soon);
const lanes = new Lanes();
const tree = new TreePanel({ plotly: props.plotly, onChange: soon });
const charts = new Charts();

const bar = make("div", "race-bar");
const marks = make("input");
marks.type = "checkbox";
marks.id = "race-marks";
const saveButton = button("race-button", "", () => exportTrace(trace), "Export trace");
saveButton.id = "race-export";
const chooser = make("input", "dart-sr");
chooser.type = "file";
chooser.id = "race-import";
chooser.accept = ".json,application/json";
chooser.tabIndex = -1;
chooser.setAttribute("aria-label", "Trace file");
const openButton = button("race-button", "", () => chooser.click(), "Open trace");
const files = make("div", "race-files");
files.append(field("race-check", marks, "mark drafted tokens"), openButton, saveButton, chooser);
bar.append(textLegend(), files);

const note = make("div", "race-note");
note.setAttribute("role", "status");
const source = make("div", "race-source");
const sourceText = make("span");
source.append(sourceText, button("race-plain", "", closeFile, "Close file"));
source.hidden = true;
const empty = make("div", "race-empty");
empty.append(
  make("h2", "", "One text, several decoders"),
  make("p", "", "Each writes the same prompt\u2019s answer with the same target model. What they draft, what the "
    + "target accepts and what it costs is recorded step by step: live, and to replay afterwards."),
);
const paneRow = make("div", "race-panes");
// All of them are always there; those of decoders that do not run are hidden.
const panes = new Map(Object.keys(LABELS).map((name) => [name, new Pane(name, (step) => tree.go(step, name))]));
const track = make("section", "race-card race-timeline");
track.setAttribute("aria-label", "Time");
track.append(lanes.node, player.node);
const details = make("div", "race-details");
details.append(tree.node, charts.node);
const foot = make("div", "race-foot");
const clocks = make("p");
const provenance = make("p");
foot.append(clocks, provenance);
const summary = make("div", "dart-sr");
summary.setAttribute("aria-live", "polite");
root.append(bar, note, source, empty, paneRow, track, details, foot, summary);

function textLegend() {
  const node = make("div", "race-legend");
  for (const [kind, word, text] of [
    ["d", "drafted", " and accepted"],
    ["n", "drafted", " with an n-gram\u2019s support"],
    ["t", "plain", " the target\u2019s own"],
  ]) {
    const item = make("span", "race-key");
    item.append(make("span", kind, word), make("span", "", text));
    node.append(item);
  }
  return node;
}

function applyMarks() {
  root.classList.toggle("plain", !marks.checked);
}
try { marks.checked = localStorage.getItem(STORE) !== "off"; } catch { marks.checked = true; }
marks.addEventListener("change", () => {
  try { localStorage.setItem(STORE, marks.checked ? "on" : "off"); } catch { /* private window */ }
  applyMarks();
});
applyMarks();

// --- files
chooser.addEventListener("change", async () => {
  const [file] = chooser.files;
  if (!file) return;
  const { trace: found, refused } = await importTrace(file, props.schema);
  chooser.value = ""; // the same file may be chosen again
  if (refused) {
    say(`${file.name} was refused. ${refused}`);
    return;
  }
  say("");
  opened = { trace: found, name: file.name };
  soon();
});

function closeFile() {
  opened = null;
  soon();
}

let refusal = "";
function say(text) {
  refusal = text;
  soon();
}

// --- drawing
function draw() {
  const value = props.value || {};
  if (value.run !== run) {
    run = value.run;
    live = new Trace();
    opened = null;
    refusal = "";
    paneDraws = tree.draws = 0;
  }
  live.feed(value.lines || "");
  const current = opened ? opened.trace : live;
  if (current !== trace || Boolean(current.header) !== isBuilt) build(current);
  root.dataset.state = opened ? "opened" : value.state || "idle";
  const words = [refusal, trace.trouble, opened ? "" : value.note].filter(Boolean).join(" ");
  setText(note, words);
  note.hidden = !words;
  if (!trace.header) return;

  const time = player.advance(trace);
  const moment = trace.at(time, player.clock);
  showPanes(moment);
  if (trace.version !== drawnVersion) paneDraws += 1;
  drawnVersion = trace.version;
  lanes.show(trace, moment);
  player.show(trace);
  tree.show(trace, moment, !player.playing && value.state !== "running");
  const now = performance.now();
  if (now - chartsAt >= CHART_INTERVAL || !player.playing) {
    chartsAt = now;
    charts.show(moment[tree.decoder]);
  }
  setText(clocks, clockSentence(trace));
  announce(moment);
  if (player.playing) soon();
}

// Another trace, or the same one now that it has its header.
function build(current) {
  trace = current;
  player.reset();
  lanes.clear();
  tree.clear();
  for (const part of [paneRow, track, details, foot]) part.hidden = !trace.header;
  empty.hidden = Boolean(trace.header);
  saveButton.disabled = !trace.header;
  source.hidden = !opened;
  isBuilt = Boolean(trace.header);
  for (const pane of panes.values()) {
    pane.clear();
    pane.node.hidden = !trace.lanes.has(pane.name);
    paneRow.append(pane.node);
  }
  differences = new Map();
  announced = opened ? trace : null;
  if (!trace.header) return;
  const base = reference(trace);
  for (const [name, lane] of trace.lanes) {
    paneRow.append(panes.get(name).node); // into their order
    if (name !== base) differences.set(name, new Difference(lane, trace.lanes.get(base)));
  }
  setText(provenance, provenanceSentence(trace.header));
  if (opened) setText(sourceText, `From the file ${opened.name}, recorded ${when(trace.header.created)}.`);
}

let pickedKey = "";
function showPanes(moment) {
  const base = reference(trace);
  const baseline = moment.baseline;
  for (const name of trace.lanes.keys()) {
    const now = moment[name];
    const difference = differences.get(name);
    const comparison = difference
      ? compared(difference.at(now.figures.tokens, moment[base].figures.tokens), now, moment[base], base) : null;
    const speeds = baseline && name !== "baseline" && now.figures.speed && baseline.figures.speed;
    panes.get(name).show(now, {
      settings: trace.header.settings,
      isReference: name === base && trace.lanes.size > 1,
      speedup: speeds ? now.figures.speed / baseline.figures.speed : null,
      comparison,
    });
  }
  const chosen = tree.chosen;
  const key = chosen ? `${chosen.decoder} ${chosen.step} ${moment[chosen.decoder].shown}` : "";
  if (key === pickedKey) return;
  pickedKey = key;
  for (const [name, lane] of trace.lanes) {
    panes.get(name).text.pick(lane.pieces, chosen && chosen.decoder === name ? chosen.step : -1);
  }
}

// Once, when a race has ended, and in one sentence.
function announce(moment) {
  if (!trace.isComplete || announced === trace || !player.isLatest) return;
  announced = trace;
  const results = [...trace.lanes.keys()].map((name) => {
    const pane = panes.get(name);
    const parts = [`${LABELS[name]} ${speedText(moment[name].figures.speed)} tokens per second`];
    if (!pane.speedup.hidden) parts.push(`${pane.speedup.textContent.slice(1)} times the Baseline`);
    if (!pane.same.hidden && pane.same.dataset.same !== "reference") parts.push(pane.same.textContent.replace("\u2713 ", ""));
    return parts.join(", ");
  });
  setText(summary, `Race finished. ${results.join(". ")}.`);
}

function clockSentence({ summary: end }) {
  const rest = "Every speed, \u03c4 and bar is by the decoder\u2019s own clock: its prefill and its steps, nothing of this page.";
  if (!end) return rest;
  return `${rest} UI overhead ${percent(Math.max(0, end.overhead))}: the part of ${end.wall.toFixed(2)} s wall time that no decoder\u2019s clock holds.`;
}

function provenanceSentence({ settings, model, mode, created, versions, prompt_tokens: length }) {
  const sampling = settings.temperature > 0
    ? [`temperature ${settings.temperature}`, `top-p ${settings.top_p}`, `top-k ${settings.top_k}`, `seed ${settings.seed}`]
    : ["greedy"];
  return [
    mode === "race" ? "race: the decoder that has used the least time goes next" : "back to back: one decoder after the other",
    ...sampling,
    settings.tree_size ? `${settings.tree_size} tree nodes` : "automatic tree size",
    ...(settings.ngram ? [`n-grams: ${settings.ngram}`] : []),
    ...(settings.score ? [`score: ${settings.score}`] : []),
    `prompt of ${plural(length, "token")}`,
    `${model.name}, ${model.dtype}, ${model.device}`,
    `torch ${versions.torch}`,
    when(created),
  ].join(" \u00b7 ");
}

function when(created) {
  const date = new Date(created);
  return Number.isNaN(date.getTime()) ? created : date.toLocaleString();
}

// How often something new of this race was drawn: for tests/page_cost.py.
root.drawn = () => ({ run, panes: paneDraws, tree: tree.draws });

draw();
watch("value", soon);
