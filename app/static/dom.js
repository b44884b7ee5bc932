// Small helpers for building the page. Text only ever enters through textContent.

export function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

export function button(className, label, onClick, text = "") {
  const node = make("button", className, text || undefined);
  node.type = "button";
  if (label) node.setAttribute("aria-label", label);
  node.addEventListener("click", onClick);
  return node;
}

// A label around an input, so that a click on the words counts.
export function field(className, input, text, before = false) {
  const label = make("label", className);
  const words = make("span", "", text);
  label.append(...(before ? [words, input] : [input, words]));
  return label;
}

// Touch the page only where something changed: a write costs a layout even if it is the same text.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export const DASH = "\u2013";

export function fixed(number, digits) {
  return number === null || number === undefined ? DASH : number.toFixed(digits);
}

export function speedText(tokensPerSecond) {
  return fixed(tokensPerSecond, tokensPerSecond >= 100 ? 0 : 1);
}

export function percent(share) {
  return (100 * share).toFixed(share < 0.1 ? 1 : 0) + "%";
}

export function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}
