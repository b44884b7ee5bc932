// Copies a link that opens the page with this form; app/link.py reads it.
async (prompt, decoders, mode, temperature, top_p, top_k, seed, tree_size, max_tokens, ngram, score) => {
  const fields = { prompt, decoders: (decoders || []).join(","), mode, temperature, top_p, top_k, seed, tree_size, max_tokens, ngram, score };
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  const link = `${location.origin}${location.pathname}?${query}`;
  let done = false;
  try {
    await navigator.clipboard.writeText(link);
    done = true;
  } catch { // no clipboard outside a secure context: the old way
    const area = document.createElement("textarea");
    area.value = link;
    area.className = "dart-sr";
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
  }
  const button = document.getElementById("copy-link");
  if (!button) return;
  button.dataset.link = link;
  button.classList.toggle("copied", done);
  setTimeout(() => button.classList.remove("copied"), 1500);
}
