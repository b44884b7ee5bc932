// The conversation. `value`: {turns: [{id, role, s, note, state}], busy}; `s` is a growing string of
// records "source \x1f text \x1e". Only its new part is looked at, and model text goes into the page
// as text: never through innerHTML.
const FIELD = "\x1f", RECORD = "\x1e";
const STORE = "dart-colours";

function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

const root = element.querySelector(".dart-chat") || element;
root.replaceChildren();

// --- the bar above: what the marks mean, and a switch for them
const bar = make("div", "dart-legend");
const drafted = make("span", "dart-key");
drafted.append(make("span", "d", "drafted"), make("span", "", " and accepted by the target"));
const own = make("span", "dart-key");
own.append(make("span", "t", "unmarked"), make("span", "", " the target\u2019s own tokens"));
const toggle = make("label", "dart-toggle");
const box = make("input");
box.type = "checkbox";
box.id = "colours";
toggle.append(box, make("span", "", "mark drafted tokens"));
bar.append(drafted, own, toggle);

function recall() {
  try { return localStorage.getItem(STORE) !== "off"; } catch { return true; }
}
function applyColours() { root.classList.toggle("plain", !box.checked); }
box.checked = recall();
box.addEventListener("change", () => {
  try { localStorage.setItem(STORE, box.checked ? "on" : "off"); } catch { /* private window */ }
  applyColours();
});
applyColours();

// --- the scrolling part
const scroller = make("div", "dart-scroll");
scroller.setAttribute("role", "log");
scroller.setAttribute("aria-live", "off");
scroller.tabIndex = 0;
scroller.setAttribute("aria-label", "Conversation");
const empty = make("div", "dart-empty");
empty.append(
  make("h2", "", "Watch a model draft ahead of itself"),
  make("p", "", "A small head guesses several tokens at once; the target checks them all in one forward. "
    + "The text is exactly the target\u2019s own \u2013 it only arrives sooner."),
);
const cards = make("div", "dart-cards");
(props.examples || []).forEach((example, index) => {
  const card = make("button", "dart-card");
  card.type = "button";
  card.append(make("span", "dart-card-title", example.title), make("span", "dart-card-text", example.prompt));
  card.addEventListener("click", () => trigger("example", { index }));
  cards.append(card);
});
empty.append(cards);
const list = make("div", "dart-turns");
scroller.append(empty, list);
const summary = make("div", "dart-sr");
summary.setAttribute("aria-live", "polite");
root.append(bar, scroller, summary);

// --- one answer's text: spans by source, fenced code in a box of its own, reasoning folded away
class Writer {
  constructor(into) {
    this.into = into;   // the answer, or the reasoning that is open
    this.target = into; // where text goes now: there, or the code box that is open
    this.held = [];     // the start of a line that may still become a fence
    this.lineStart = true;
    this.inCode = false;
  }
  put(source, text) {
    if (!text) return;
    const node = make("span", source === "d" ? "d" : "t", text);
    if (source === "d") node.title = "drafted, and accepted by the target";
    this.target.append(node);
  }
  release() {
    for (const [source, text] of this.held) this.put(source, text);
    this.held = [];
    this.lineStart = false;
  }
  push(source, text) {
    // Line by line; a break belongs to the line it ends.
    for (const part of text.split(/(?<=\n)/)) {
      if (!this.lineStart) {
        this.put(source, part);
      } else {
        this.held.push([source, part]);
        const line = this.held.map((piece) => piece[1]).join("");
        if (/^ {0,3}`{3}/.test(line)) {
          if (!line.endsWith("\n")) continue; // its language is not complete yet
          this.fence(line.trim().slice(3).trim());
          continue;
        }
        if (/^ {0,3}`{0,2}$/.test(line)) continue; // may still become one
        this.release();
      }
      this.lineStart = part.endsWith("\n");
    }
  }
  fence(language) {
    this.held = [];
    this.lineStart = true;
    this.inCode = !this.inCode;
    if (this.inCode) {
      const pre = make("pre", "dart-code");
      if (language) pre.dataset.language = language.slice(0, 20);
      this.target = pre.appendChild(make("code"));
      this.into.append(pre);
    } else {
      this.target = this.into;
    }
  }
  end() {
    const line = this.held.map((piece) => piece[1]).join("");
    if (/^ {0,3}`{3}/.test(line)) this.fence(line.trim().slice(3).trim());
    else this.release();
  }
}

// What models write around their reasoning, at the start of an answer. The tags may come in parts.
const OPEN = "<think>", CLOSE = "</think>";

class Folder {
  constructor(into) {
    this.into = into;
    this.writer = new Writer(into);
    this.fold = null; // the reasoning that is open
    this.held = [];   // the start of what may become a tag
    this.isStart = true;
    this.blank = false; // after a tag: blank lines there are the format's, not the text's
  }
  push(source, text) {
    this.held.push([source, text]);
    for (;;) {
      const all = this.held.map((piece) => piece[1]).join("");
      if (!this.fold && !this.isStart) return this.pass(all.length);
      const tag = this.fold ? CLOSE : OPEN;
      const at = all.indexOf(tag);
      if (at >= 0 && (this.fold || !all.slice(0, at).trim())) {
        this.pass(at);
        this.drop(tag.length);
        this.turn();
        continue;
      }
      let keep = Math.min(tag.length - 1, all.length);
      while (keep && !tag.startsWith(all.slice(all.length - keep))) keep -= 1;
      this.pass(all.length - keep);
      return;
    }
  }
  // Hand on so many characters of what is held, each with its source.
  pass(count) {
    for (const [source, text] of this.drop(count)) {
      const shown = this.blank ? text.replace(/^\s+/, "") : text;
      if (!shown) continue;
      this.blank = false;
      if (shown.trim()) this.isStart = false;
      this.writer.push(source, shown);
    }
  }
  drop(count) {
    const taken = [];
    while (count > 0) {
      const [source, text] = this.held[0];
      taken.push([source, text.slice(0, count)]);
      if (text.length > count) this.held[0] = [source, text.slice(count)];
      else this.held.shift();
      count -= text.length;
    }
    return taken;
  }
  turn() {
    this.writer.end();
    if (this.fold) {
      if (!this.fold.textContent) this.fold.parentElement.remove(); // an empty thought
      this.fold = null;
      this.writer = new Writer(this.into);
    } else {
      const details = make("details", "dart-think");
      details.append(make("summary", "", "Reasoning"));
      this.fold = details.appendChild(make("div"));
      this.into.append(details);
      this.writer = new Writer(this.fold);
    }
    this.blank = true;
  }
  end() {
    this.pass(this.held.reduce((sum, piece) => sum + piece[1].length, 0));
    this.writer.end();
  }
}

function plainText(s) {
  return s.split(RECORD).map((record) => record.slice(record.indexOf(FIELD) + 1)).join("");
}

async function copy(text, button) {
  let done = false;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch { // no clipboard outside a secure context: the old way
    const area = make("textarea", "dart-sr");
    area.value = text;
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
  }
  button.textContent = done ? "Copied" : "Copy failed";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

class Turn {
  constructor(turn) {
    this.id = turn.id;
    this.seen = 0;
    this.state = "";
    this.node = make("article", "dart-turn " + (turn.role === "user" ? "user" : "assistant"));
    this.node.setAttribute("aria-label", turn.role === "user" ? "You" : "Model");
    this.body = make("div", "dart-body");
    this.foot = make("div", "dart-foot");
    this.note = make("span", "dart-note");
    this.foot.append(this.note);
    const text = () => plainText(this.s || "");
    if (turn.role === "user") {
      this.action("dart-edit", "Edit", () => this.edit(text()));
    } else {
      const button = this.action("dart-copy", "Copy", () => copy(text(), button));
      this.action("dart-retry", "Retry", () => trigger("retry", { turn: this.id }));
    }
    this.node.append(this.body, this.foot);
    this.writer = new Folder(this.body);
  }
  action(className, label, act) {
    const button = make("button", "dart-action " + className, label);
    button.type = "button";
    button.addEventListener("click", act);
    this.foot.append(button);
    return button;
  }
  // The question in a box, to be asked again in other words.
  edit(text) {
    if (this.node.querySelector(".dart-editor")) return;
    const form = make("form", "dart-editor");
    const area = make("textarea");
    area.value = text;
    area.rows = Math.min(8, text.split("\n").length + 1);
    area.setAttribute("aria-label", "Edit the question");
    const send = make("button", "dart-action dart-send", "Ask again");
    const cancel = make("button", "dart-action", "Cancel");
    cancel.type = "button";
    const close = () => { form.remove(); this.body.hidden = this.foot.hidden = false; };
    cancel.addEventListener("click", close);
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { event.preventDefault(); close(); }
      if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); form.requestSubmit(); }
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!area.value.trim()) return;
      trigger("edit", { turn: this.id, text: area.value });
      close();
    });
    form.append(area, send, cancel);
    this.body.hidden = this.foot.hidden = true;
    this.node.append(form);
    area.focus();
  }
  update(turn) {
    if (turn.s.length < this.seen) { // another text under the same id: begin again
      this.body.replaceChildren();
      this.writer = new Folder(this.body);
      this.seen = 0;
      this.state = "";
    }
    this.s = turn.s;
    // Up to the last complete record.
    const end = turn.s.lastIndexOf(RECORD) + 1;
    if (end > this.seen) {
      for (const record of turn.s.slice(this.seen, end).split(RECORD)) {
        const cut = record.indexOf(FIELD);
        if (cut > 0) this.writer.push(record.slice(0, cut), record.slice(cut + 1));
      }
      this.seen = end;
    }
    if (turn.state !== this.state) {
      if (turn.state === "done") this.writer.end();
      this.node.dataset.state = this.state = turn.state;
    }
    if (this.note.textContent !== turn.note) this.note.textContent = turn.note;
  }
}

let shown = [];
let wasBusy = false;

function render(value) {
  const turns = (value && value.turns) || [];
  const atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
  const fresh = shown.length !== turns.length;
  // Keep what is still there, drop the rest.
  let same = 0;
  while (same < shown.length && same < turns.length && shown[same].id === turns[same].id) same += 1;
  for (const old of shown.splice(same)) old.node.remove();
  for (const turn of turns.slice(same)) {
    const made = new Turn(turn);
    shown.push(made);
    list.append(made.node);
  }
  turns.forEach((turn, index) => shown[index].update(turn));
  empty.hidden = turns.length > 0;
  bar.hidden = turns.length === 0;
  if (atEnd || fresh) scroller.scrollTop = scroller.scrollHeight;
  const busy = Boolean(value && value.busy);
  root.classList.toggle("busy", busy); // nothing to edit or retry meanwhile
  if (wasBusy && !busy && shown.length) summary.textContent = "Answer finished: " + turns[turns.length - 1].note;
  wasBusy = busy;
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
