// Traces as files, in the browser alone: nothing is sent anywhere.
import { fault } from "./schema.js";
import { Trace } from "./trace.js";

const MOST_BYTES = 64 * 1024 * 1024;

export function exportTrace(trace) {
  const file = { ...trace.header, events: trace.events };
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(file)], { type: "application/json" }));
  link.download = `dart-trace-${trace.header.created.replace(/[^0-9TZ-]+/g, "-").slice(0, 40)}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// File -> {trace} or {refused: a sentence}
export async function importTrace(file) {
  if (file.size > MOST_BYTES) {
    return { refused: `It has ${(file.size / 2 ** 20).toFixed(0)} MB; at most ${MOST_BYTES / 2 ** 20} MB are read.` };
  }
  let parsed;
  try {
    parsed = JSON.parse(await file.text());
  } catch {
    return { refused: "It is not JSON: choose a trace that this page exported." };
  }
  const wrong = fault(parsed);
  if (wrong) return { refused: wrong };
  const trace = new Trace();
  const { events, ...header } = parsed;
  trace.add({ ...header, kind: "header" });
  for (const event of events) trace.add(event);
  return { trace };
}
