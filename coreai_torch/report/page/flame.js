// The flame graph: a row for each level of modules, as wide as their time, multiply-adds or
// parameters. A click makes a module as wide as the page.

const ROW = 22;
const METRICS = [
  { key: "ms", name: "Time", show: (count) => milliseconds(count) },
  { key: "macs", name: "Multiply-adds", show: quantity },
  { key: "parameters", name: "Parameters", show: quantity },
  { key: "ops", name: "Ops", show: (count) => counted(count, "op") },
];
const flame = { metric: METRICS[0], root: null, at: null };

function flameNode(at, label, parent) {
  const node = { label, at, parent, path: at.path, children: [], depth: parent ? parent.depth + 1 : 0 };
  for (const inner of at.children.values()) {
    const { label: shown, at: end } = shortened(inner);
    node.children.push(flameNode(end, numbered(shown, end.path), node));
  }
  return node;
}

const amount = (node) => node.at[flame.metric.key];

function startFlame(graph) {
  const label = text(graph.composite) || text(graph.name);
  flame.root = flameNode(trees.get(graph).tree, label, null);
  const present = METRICS.filter(({ key }) => flame.root.at[key]);
  if (!present.length) {
    document.getElementById("flame").remove();
    document.querySelector('nav a[href="#flame"]')?.remove();
    return;
  }
  flame.metric = present[0];
  const buttons = present.map((metric) => {
    return button(metric.name, "", () => chooseMetric(metric, buttons, present));
  });
  document.getElementById("flame-metrics").append(...buttons);
  chooseMetric(present[0], buttons, present);
  new ResizeObserver(() => drawFlame()).observe(document.getElementById("flame-graph"));
}

function chooseMetric(metric, buttons, present) {
  flame.metric = metric;
  flame.at = flame.root;
  buttons.forEach((each, index) => each.setAttribute("aria-pressed", present[index] === metric));
  drawFlame();
}

function drawFlame() {
  const holder = document.getElementById("flame-graph");
  const width = holder.clientWidth;
  if (!width || (holder.drawn === width && holder.metric === flame.metric && holder.at === flame.at)) return;
  Object.assign(holder, { drawn: width, metric: flame.metric, at: flame.at });
  const svg = drawing("svg", { class: "flame", width, role: "img", "aria-label": "Flame graph" });
  const line = [];
  for (let node = flame.at.parent; node; node = node.parent) line.unshift(node);
  for (const node of line) svg.append(flameBar(node, 0, width, node.depth, "around"));
  const last = flameRows(svg, flame.at, 0, width);
  svg.setAttribute("height", (last + 1) * ROW);
  holder.replaceChildren(svg);
  flameNote(flame.at);
}

// Draw a node and its children; bars under half a pixel are left out. Return the last row.
function flameRows(svg, node, left, width) {
  svg.append(flameBar(node, left, width, node.depth, ""));
  let last = node.depth;
  let at = left;
  const whole = amount(node) || 1;
  const children = [...node.children].sort((a, b) => amount(b) - amount(a));
  for (const child of children) {
    const share = (amount(child) / whole) * width;
    if (share >= 0.5) last = Math.max(last, flameRows(svg, child, at, share));
    at += share;
  }
  return last;
}

function flameBar(node, left, width, row, kind) {
  const bar_ = drawing("g", { class: `flame-bar tone${toneOf(node)} ${kind}`, tabindex: 0, role: "button" });
  const y = row * ROW;
  bar_.append(drawing("rect", { x: left, y, width: Math.max(width - 1, 0.5), height: ROW - 1, rx: 2 }));
  const share = amount(node) / (amount(flame.root) || 1);
  const said = `${node.path || node.label}: ${flame.metric.show(amount(node))}, ${(100 * share).toFixed(1)} %`;
  const room = Math.floor((width - 10) / 7);
  if (room > 2) {
    const label = node.label.length > room ? `${node.label.slice(0, room - 1)}…` : node.label;
    bar_.append(Object.assign(drawing("text", { x: left + 5, y: y + 15 }), { textContent: label }));
  }
  bar_.append(Object.assign(drawing("title", {}), { textContent: said }));
  bar_.setAttribute("aria-label", said);
  const go = () => {
    flame.at = node === flame.at && node.parent ? node.parent : node;
    drawFlame();
  };
  bar_.addEventListener("click", go);
  bar_.addEventListener("keydown", (event) => event.key === "Enter" && go());
  bar_.addEventListener("pointerenter", () => flameNote(node));
  bar_.addEventListener("pointerleave", () => flameNote(flame.at));
  return bar_;
}

function flameNote(node) {
  const share = amount(node) / (amount(flame.root) || 1);
  const place = node.path || node.label;
  document.getElementById("flame-note").textContent =
    `${place}: ${flame.metric.show(amount(node))}, ${(100 * share).toFixed(1)} % of ${flame.root.label}`;
}

// Modules of the same name have the same color: `bn1` of every block.
function toneOf(node) {
  const name = node.label.replace(/\d+/g, "");
  let sum_ = node.depth;
  for (const letter of name) sum_ = (sum_ * 31 + letter.codePointAt(0)) % 997;
  return sum_ % 6;
}

function drawing(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
