// What a trace file must look like, field by field. A file comes from anywhere: nothing of it is
// shown before all of it has been checked.

const SCHEMA = "dart-trace/1";
const DECODERS = ["dart", "eagle3", "baseline"];
const LIMITS = { events: 100_000, nodes: 1024, tokens: 1024, text: 2000, prompt: 100_000 };

class Refusal extends Error {}

// A check takes a value and its place in the file, and throws a Refusal where it does not hold.
function refuse(place, expected, value) {
  const found = typeof value === "string" ? `the text ${JSON.stringify(value.slice(0, 40))}`
    : value === undefined ? "nothing" : value === null ? "null"
      : Array.isArray(value) ? `a list of ${value.length}` : typeof value === "object" ? "an object" : String(value);
  throw new Refusal(`${place}: expected ${expected}, found ${found}`);
}

const text = (most, { empty = true } = {}) => (value, place) => {
  if (typeof value !== "string" || value.length > most || (!empty && !value)) {
    refuse(place, `${empty ? "a" : "a non-empty"} text of at most ${most} characters`, value);
  }
};
const number = (low = -Infinity, high = Infinity) => (value, place) => {
  if (typeof value !== "number" || !Number.isFinite(value) || value < low || value > high) {
    const range = low === -Infinity ? "" : high === Infinity ? ` from ${low}` : ` from ${low} to ${high}`;
    refuse(place, `a number${range}`, value);
  }
};
const integer = (low, high = Number.MAX_SAFE_INTEGER) => (value, place) => {
  if (!Number.isInteger(value) || value < low || value > high) {
    refuse(place, `an integer from ${low}${high === Number.MAX_SAFE_INTEGER ? "" : ` to ${high}`}`, value);
  }
};
const flag = (value, place) => {
  if (typeof value !== "boolean") refuse(place, "true or false", value);
};
const oneOf = (...names) => (value, place) => {
  if (!names.includes(value)) refuse(place, names.map((name) => JSON.stringify(name)).join(" or "), value);
};
const orNull = (check) => (value, place) => {
  if (value !== null) check(value, place);
};
const list = (check, low, high) => (value, place) => {
  if (!Array.isArray(value) || value.length < low || value.length > high) {
    refuse(place, low === high ? `a list of ${low}` : `a list of ${low} to ${high}`, value);
  }
  value.forEach((item, i) => check(item, `${place}[${i}]`));
};
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const anything = (value, place) => {
  if (!isObject(value)) refuse(place, "an object", value);
};
const object = (fields, optional = {}) => (value, place) => {
  anything(value, place);
  const at = (name) => (place ? `${place}.${name}` : name);
  for (const [name, check] of Object.entries(fields)) check(value[name], at(name));
  for (const [name, check] of Object.entries(optional)) {
    if (value[name] !== undefined) check(value[name], at(name));
  }
};

const seconds = number(0, 1e7);
const header = object({
  schema: oneOf(SCHEMA),
  created: text(100),
  mode: oneOf("race", "back_to_back"),
  prompt: text(LIMITS.prompt),
  prompt_tokens: integer(0),
  decoders: list(oneOf(...DECODERS), 1, DECODERS.length),
  settings: object({
    temperature: number(0), top_p: number(0, 1), top_k: integer(0), seed: number(0),
    tree_size: orNull(integer(0)), max_tokens: integer(1),
  }),
  model: object({
    name: text(500), parameters: integer(0), device: text(200), dtype: text(100), is_demo: flag,
  }),
  versions: object({
    dart: text(100), torch: text(100), transformers: text(100), gradio: text(100), python: text(100),
  }),
  events: list(anything, 0, LIMITS.events),
});

const piece = (value, place) => {
  list(() => {}, 3, 3)(value, place);
  integer(0)(value[0], `${place}[0]`);
  text(LIMITS.text)(value[1], `${place}[1]`);
  oneOf("t", "d", "n")(value[2], `${place}[2]`);
};
const step = object({
  t: seconds,
  busy: seconds,
  seconds: object({}, { prefill: seconds, draft: seconds, search: seconds, verify: seconds }),
  tokens: list(piece, 0, LIMITS.tokens),
  accept: integer(0),
  tree: orNull(tree),
});
const end = object({
  t: seconds,
  reason: oneOf("eos", "length", "stopped", "error"),
  error: orNull(text(10_000)),
  figures: anything,
});
const summary = object({ wall: seconds, busy: seconds, overhead: number(-1e6, 1) });

function tree(value, place) {
  anything(value, place);
  list(integer(0), 1, LIMITS.nodes)(value.ids, `${place}.ids`);
  const count = value.ids.length;
  const column = (check) => list(check, count, count);
  object({
    texts: column(text(LIMITS.text)),
    parents: column((parent, at) => integer(-1)(parent, at)),
    scores: orNull(column(number())),
    draft: orNull(column(number(0, 1.001))),
    ngram: orNull(column(number(0, 1.001))),
    matched: orNull(column(integer(0))),
    ranks: orNull(column(integer(-1))),
    path: list(integer(0, count - 1), 1, count),
    chosen: column(integer(0)),
    chosen_texts: column(text(LIMITS.text)),
  })(value, place);
  value.parents.forEach((parent, node) => {
    const at = `${place}.parents[${node}]`;
    if (node === 0) integer(-1, -1)(parent, at);
    else integer(0, node - 1)(parent, at);
  });
  value.path.forEach((node, i) => {
    const expected = i ? value.path[i - 1] : -1;
    if ((i ? value.parents[node] : node - 1) !== expected) {
      refuse(`${place}.path[${i}]`, i ? `a child of node ${expected}` : "the root, 0", node);
    }
  });
}

// What only makes sense between the lines of a file.
function checkOrder(file) {
  if (new Set(file.decoders).size !== file.decoders.length) {
    refuse("decoders", "each decoder once", file.decoders.join(", "));
  }
  const last = Object.fromEntries(file.decoders.map((name) => [name, { t: 0, busy: 0, ended: false }]));
  file.events.forEach((event, i) => {
    const place = `events[${i}]`;
    oneOf("step", "end", "summary")(event.kind, `${place}.kind`);
    if (event.kind === "summary") {
      summary(event, place);
      return;
    }
    oneOf(...file.decoders)(event.decoder, `${place}.decoder`);
    (event.kind === "step" ? step : end)(event, place);
    const before = last[event.decoder];
    if (before.ended) refuse(place, `nothing more of ${event.decoder} after its end`, event.kind);
    if (event.t < before.t) refuse(`${place}.t`, `no less than the ${before.t} before it`, event.t);
    before.t = event.t;
    before.ended = event.kind === "end";
    if (event.kind === "end") return;
    if (event.busy < before.busy) refuse(`${place}.busy`, `no less than the ${before.busy} before it`, event.busy);
    before.busy = event.busy;
    if (event.accept > event.tokens.length) {
      refuse(`${place}.accept`, `at most the ${event.tokens.length} tokens of the step`, event.accept);
    }
    if (event.tree && event.accept !== event.tree.path.length - 1) {
      refuse(`${place}.accept`, `the ${event.tree.path.length - 1} tokens of the path`, event.accept);
    }
  });
}

// A parsed file -> null, or a sentence that says what is wrong with it.
export function fault(file) {
  try {
    if (!isObject(file)) return "It holds no trace: expected an object with the fields of a race.";
    if (file.schema !== SCHEMA) {
      refuse("schema", `${JSON.stringify(SCHEMA)} (a trace that this page exported)`, file.schema);
    }
    header(file, "");
    checkOrder(file);
    return null;
  } catch (error) {
    if (error instanceof Refusal) return error.message + ".";
    throw error;
  }
}
