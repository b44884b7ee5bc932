// What was recorded of one race. It only grows, and every view asks it for "the race up to time t".
// The lines are described in app/trace.schema.json; live lines and an imported file's events come in alike.

export const CLOCKS = { busy: "each decoder\u2019s own clock", wall: "wall clock" };

export class Lane { // one decoder
  constructor(name) {
    this.name = name;
    this.steps = []; // each with running totals, so that any moment's figures are a look-up
    this.pieces = []; // all tokens: {id, text, source, step}
    this.depth = 1; // deepest tree so far, bonus token included
    this.end = null;
  }

  // gap: seconds around the step that no decoder's clock holds
  addStep(line, gap) {
    const before = this.steps.length ? this.steps[this.steps.length - 1].total : START;
    const prefill = line.seconds.prefill;
    const isPrefill = prefill !== undefined;
    const spent = (stage) => line.seconds[stage] || 0;
    const stages = {
      draft: before.stages.draft + spent("draft"),
      search: before.stages.search + spent("search"),
      verify: before.stages.verify + spent("verify"),
      other: before.stages.other + (isPrefill ? 0 : gap),
    };
    const total = {
      tokens: before.tokens + line.tokens.length,
      forwards: before.forwards + (isPrefill ? 0 : 1),
      decoded: before.decoded + (isPrefill ? 0 : line.tokens.length),
      accepted: before.accepted + line.accept,
      drafted: before.drafted + (line.tree ? line.tree.ids.length - 1 : 0),
      prefill: before.prefill + (prefill || 0),
      stages,
      busy: line.busy,
    };
    const number = this.steps.length;
    for (const [id, text, source] of line.tokens) this.pieces.push({ id, text, source, step: number });
    if (line.tree) this.depth = Math.max(this.depth, deepest(line.tree.parents));
    this.steps.push({ ...line, number, gap, total, depth: line.tree ? deepest(line.tree.parents) : 0 });
  }

  // How many steps had ended by time t of that clock.
  shown(t, clock) {
    const key = clock === "wall" ? "t" : "busy";
    let low = 0, high = this.steps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.steps[middle][key] <= t) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  hasEnded(t, clock) {
    if (!this.end) return false;
    return clock === "wall" ? this.end.t <= t : this.shown(t, clock) === this.steps.length;
  }

  duration(clock) {
    const last = this.steps[this.steps.length - 1];
    if (clock === "wall") return Math.max(last ? last.t : 0, this.end ? this.end.t : 0);
    return last ? last.busy : 0;
  }
}

const START = {
  tokens: 0, forwards: 0, decoded: 0, accepted: 0, drafted: 0, prefill: 0, busy: 0,
  stages: { draft: 0, search: 0, verify: 0, other: 0 },
};

export function deepest(parents) {
  const depths = [0];
  let most = 0;
  for (let node = 1; node < parents.length; node += 1) {
    depths.push(depths[parents[node]] + 1);
    most = Math.max(most, depths[node]);
  }
  return most;
}

// The figures of a lane's first `shown` steps, by the definitions of dart/stats.py.
export function figures(lane, shown) {
  const total = shown ? lane.steps[shown - 1].total : START;
  const { draft, search, verify } = total.stages;
  const seconds = draft + search + verify;
  return {
    ...total,
    steps: total.forwards,
    tau: total.forwards ? total.decoded / total.forwards : null,
    speed: total.decoded && seconds > 0 ? total.decoded / seconds : null,
    seconds: total.stages,
  };
}

export class Trace {
  constructor() {
    this.header = null;
    this.lanes = new Map(); // in the order of the panes
    this.summary = null;
    this.clock = 0; // the wall clock at the last event
    this.trouble = ""; // a sentence where a line could not be read
    this.read = 0; // characters of `lines` that were looked at
    this.version = 0; // grows with every line
    this.events = []; // for the export
  }

  // The whole string of lines so far; only its new, complete lines are parsed.
  feed(lines) {
    const end = lines.lastIndexOf("\n") + 1;
    if (end <= this.read) return;
    for (const line of lines.slice(this.read, end).split("\n")) {
      if (!line) continue;
      try {
        this.add(JSON.parse(line));
      } catch (error) {
        this.trouble = `A line of the trace could not be read: ${error.message}`;
      }
    }
    this.read = end;
  }

  add(line) {
    this.version += 1;
    if (line.kind === "header") {
      const { kind, ...header } = line;
      this.header = header;
      for (const name of header.decoders) this.lanes.set(name, new Lane(name));
      return;
    }
    this.events.push(line);
    if (line.kind === "summary") {
      this.summary = line;
      return;
    }
    const lane = this.lanes.get(line.decoder);
    if (line.kind === "end") {
      lane.end = line;
    } else {
      const spent = Object.values(line.seconds).reduce((sum, seconds) => sum + seconds, 0);
      lane.addStep(line, Math.max(0, line.t - this.clock - spent));
    }
    this.clock = line.t;
  }

  get isComplete() {
    return Boolean(this.header) && [...this.lanes.values()].every((lane) => lane.end);
  }

  duration(clock) {
    return Math.max(0, ...[...this.lanes.values()].map((lane) => lane.duration(clock)));
  }

  // What can be seen at time t (Infinity: everything): per decoder the steps shown and whether it
  // has ended.
  at(t, clock) {
    const moment = {};
    for (const [name, lane] of this.lanes) {
      const shown = lane.shown(t, clock);
      moment[name] = { lane, shown, ended: lane.hasEnded(t, clock), figures: figures(lane, shown) };
    }
    return moment;
  }
}

// The decoder to which the others are compared.
export function reference(trace) {
  return trace.lanes.has("baseline") ? "baseline" : trace.header.decoders[0];
}

// Finds where two lanes' tokens part, looking at every position once while they grow.
export class Difference {
  constructor(lane, other) {
    this.lane = lane;
    this.other = other;
    this.position = 0; // all before it are equal
  }

  // {same, position}: of the first `count` and `otherCount` tokens
  at(count, otherCount) {
    const ours = this.lane.pieces, theirs = this.other.pieces;
    const most = Math.min(ours.length, theirs.length);
    while (this.position < most && ours[this.position].id === theirs[this.position].id) this.position += 1;
    return { same: this.position >= Math.min(count, otherCount), position: this.position };
  }
}
