// Traces as files, in the browser alone: nothing is sent anywhere. A file comes from anywhere, so
// nothing of it is shown before all of it has been checked.
import { describe, problem } from "./schema.js";
import { Trace } from "./trace.js";

const MOST_BYTES = 64 * 1024 * 1024;

export function exportTrace(trace) {
  const file = { ...trace.header, events: trace.events };
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(file)], { type: "application/json" }));
  link.download = `dart-trace-${trace.header.created.replace(/[^0-9TZ]+/g, "-").slice(0, 40)}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// File, the schema of trace files -> {trace} or {refused: a sentence}
export async function importTrace(file, schema) {
  if (file.size > MOST_BYTES) {
    return { refused: `It has ${(file.size / 2 ** 20).toFixed(0)} MB; at most ${MOST_BYTES / 2 ** 20} MB are read.` };
  }
  let parsed;
  try {
    parsed = JSON.parse(await file.text());
  } catch {
    return { refused: "It is not JSON: choose a trace that this page exported." };
  }
  const wrong = problem(parsed, schema) || orderProblem(parsed) || treeProblem(parsed);
  if (wrong) return { refused: `It is not a trace that can be shown: ${wrong}.` };
  const trace = new Trace();
  const { events, ...header } = parsed;
  trace.add({ ...header, kind: "header" });
  for (const event of events) trace.add(event);
  return { trace };
}

// What no schema can say: how the events follow each other.
function orderProblem({ decoders, events }) {
  const running = new Set(decoders);
  const busy = Object.fromEntries(decoders.map((name) => [name, 0]));
  let time = 0, isOver = false;
  for (const [i, event] of events.entries()) {
    const at = `events[${i}]`;
    if (isOver) return `${at}: nothing may come after the summary`;
    if (event.kind === "summary") {
      isOver = true;
      continue;
    }
    if (!running.has(event.decoder)) return `${at}.decoder: ${describe(event.decoder)} does not run, or has ended before`;
    if (event.t < time) return `${at}.t: ${event.t} comes after ${time}; expected events in order`;
    time = event.t;
    if (event.kind === "end") {
      running.delete(event.decoder);
      continue;
    }
    if (event.busy < busy[event.decoder]) {
      return `${at}.busy: ${event.busy} comes after ${busy[event.decoder]}; a clock does not go back`;
    }
    busy[event.decoder] = event.busy;
    if (event.accept > event.tokens.length) {
      return `${at}.accept: ${event.accept} of ${event.tokens.length} tokens`;
    }
  }
  return null;
}

function treeProblem({ events }) {
  for (const [i, { tree }] of events.entries()) {
    if (!tree) continue;
    const at = `events[${i}].tree`, count = tree.ids.length;
    for (const [name, column] of Object.entries(tree)) {
      if (name !== "path" && column !== null && column.length !== count) {
        return `${at}.${name}: ${column.length} entries for ${count} nodes`;
      }
    }
    for (const [node, parent] of tree.parents.entries()) {
      if (node === 0 ? parent !== -1 : parent < 0 || parent >= node) {
        return `${at}.parents[${node}]: ${parent} is no earlier node`;
      }
    }
    const leadsDown = tree.path.every((node, k) => node < count
      && tree.parents[node] === (k ? tree.path[k - 1] : -1));
    if (!leadsDown) return `${at}.path: ${tree.path.slice(0, 20).join(", ")} does not lead down from the root`;
  }
  return null;
}
