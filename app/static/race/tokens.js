// How a token is written out where it stands alone, and what its source is called.

const PICTURES = { " ": "\u2423", "\n": "\u21b5", "\r": "\u240d", "\t": "\u21e5" };

// Blanks and control characters made visible; an incomplete character has no text yet.
export function visible(text) {
  if (text === "") return "\u2026";
  return text.replace(/[ \u0000-\u001f\u007f]/g, (c) => PICTURES[c]
    || String.fromCharCode(c === "\u007f" ? 0x2421 : 0x2400 + c.charCodeAt(0)));
}

// At most `most` characters, never half of one.
export function shortened(text, most) {
  const characters = [...text];
  return characters.length <= most ? text : characters.slice(0, most - 1).join("") + "\u2026";
}

export function quoted(text) {
  return `\u201c${visible(text)}\u201d`;
}

export const SOURCES = {
  d: "drafted, and accepted by the target",
  n: "drafted with an n-gram\u2019s support, and accepted by the target",
  t: "the target\u2019s own token",
};

export const LABELS = { dart: "DART", eagle3: "EAGLE3", baseline: "Baseline" };
