// The header. `value`: {state, text, seconds, facts: [[label, value]...], demo}.
function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

const root = element.querySelector(".dart-status") || element;
root.replaceChildren();
const top = make("div", "dart-top");
const brand = make("div", "dart-brand");
const mark = make("span", "dart-mark");
mark.setAttribute("aria-hidden", "true");
mark.append(make("i"), make("i"), make("i"));
const name = make("h1", "", "DART");
brand.append(mark, name, make("span", "dart-tagline", "speculative decoding you can watch"));
const facts = make("div", "dart-facts");
const light = make("span", "dart-light");
const lightText = make("span");
light.setAttribute("role", "status");
light.append(make("i"), lightText);
top.append(brand, facts, light);
const progress = make("div", "dart-progress");
progress.append(make("i"));
const line = make("p", "dart-line");
root.append(top, progress, line);

function render(value) {
  const v = value || { state: "loading", text: "Starting", seconds: 0 };
  root.dataset.state = v.state;
  lightText.textContent = v.state === "loading" ? `${v.text} \u2026 ${v.seconds.toFixed(0)} s` : v.state;
  progress.hidden = v.state !== "loading";
  facts.replaceChildren(...(v.facts || []).map(([label, text]) => {
    const fact = make("span", "dart-fact", text);
    fact.title = label;
    return fact;
  }));
  line.textContent = v.state === "failed" ? v.text : v.demo || "";
  line.hidden = !line.textContent;
}

render(props.value);
watch("value", () => render(props.value));
