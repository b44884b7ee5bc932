// Which moment of the race is on show: the latest, or one that a replay or the slider chose.
import { button, field, make, setText } from "../dom.js";
import { CLOCKS } from "./trace.js";

const SPEEDS = [0.25, 0.5, 1, 2, 4];

export class Player {
  // onChange: another moment is to be shown
  constructor(onChange) {
    this.onChange = onChange;
    this.time = Infinity; // seconds of the chosen clock; Infinity: the latest there is
    this.playing = false;
    this.clock = "busy";
    this.speed = 1;
    this.build();
  }

  build() {
    this.node = make("div", "race-player");
    this.play = button("race-play", "Play", () => this.toggle());
    this.play.append(make("i"));
    this.scrubber = make("input");
    this.scrubber.type = "range";
    this.scrubber.min = 0;
    this.scrubber.step = "any";
    this.scrubber.className = "race-slider";
    this.scrubber.id = "race-time";
    this.scrubber.setAttribute("aria-label", "Moment of the race");
    this.scrubber.addEventListener("input", () => this.seek(Number(this.scrubber.value)));
    this.label = make("span", "race-position");
    this.latest = button("race-plain", "", () => this.toLatest(), "Live");
    this.latest.id = "race-latest";
    this.node.append(
      this.play, this.scrubber, this.label, this.latest,
      field("race-select", choice("race-speed", SPEEDS.map((x) => [String(x), `\u00d7${x}`]), "1", (value) => {
        this.speed = Number(value);
      }), "speed", true),
      field("race-select", choice("race-clock", Object.entries(CLOCKS), this.clock, (value) => {
        this.clock = value;
        this.time = Infinity;
        this.playing = false;
        this.onChange();
      }), "by", true),
    );
  }

  get isLatest() {
    return this.time === Infinity;
  }

  reset() {
    this.time = Infinity;
    this.playing = false;
  }

  toggle() {
    this.playing = !this.playing;
    if (this.playing && this.isLatest) this.time = 0;
    this.last = performance.now();
    this.onChange();
  }

  seek(time) {
    this.time = time;
    this.playing = false;
    this.onChange();
  }

  toLatest() {
    this.reset();
    this.onChange();
  }

  // Move on by the time that has passed; the moment to show.
  advance(trace) {
    const duration = trace.duration(this.clock);
    if (this.playing) {
      const now = performance.now();
      this.time += ((now - this.last) / 1000) * this.speed;
      this.last = now;
      if (this.time >= duration) this.reset(); // the end, which is the race itself while that runs
    }
    return this.time;
  }

  show(trace) {
    const duration = trace.duration(this.clock);
    const time = Math.min(this.time, duration);
    this.scrubber.max = duration || 1;
    this.scrubber.value = time;
    this.scrubber.disabled = !duration;
    this.play.disabled = !duration;
    this.play.dataset.playing = this.playing;
    this.play.setAttribute("aria-label", this.playing ? "Pause" : "Play");
    const text = `${time.toFixed(2)} / ${duration.toFixed(2)} s`;
    setText(this.label, text);
    this.scrubber.setAttribute("aria-valuetext", `${time.toFixed(2)} of ${duration.toFixed(2)} seconds`);
    setText(this.latest, trace.isComplete ? "End" : "Live");
    this.latest.disabled = this.isLatest;
  }
}

function choice(id, options, chosen, onChange) {
  const select = make("select");
  select.id = id;
  for (const [value, text] of options) {
    const option = make("option", "", text);
    option.value = value;
    option.selected = value === chosen;
    select.append(option);
  }
  select.addEventListener("change", () => onChange(select.value));
  return select;
}
