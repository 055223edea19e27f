// The drawn graph: zoom, open and close modules, search, and the details of a box.

const CATEGORIES = [
  ["product", "Convolutions and matrix products", /conv|matmul|gemm|linear|attention/],
  ["norm", "Norms and reductions", /norm|reduce|mean|sum|softmax|pool|arg|cum|max$|min$/],
  ["activation", "Activations", /relu|gelu|silu|sigmoid|tanh|erf|exp|elu|swish|softplus/],
  ["move", "Shapes and copies", /reshape|transpose|concat|slice|pad|gather|scatter|split|expand|squeeze|broadcast|cast|tile|shape|copy|select|constant/],
  ["other", "Other ops", /.?/],
];
const view = { scene: null, selected: null, color: "kind", at: null, built: new Map(), hits: [], hit: -1 };
const flowSvg = document.getElementById("flow");
const world = drawing("g", { class: "world" });
const flowDetail = document.getElementById("flow-detail");
const flowStatus = document.getElementById("flow-status");

const zoom = d3.zoom().scaleExtent([0.02, 3]).filter(mayZoom).on("zoom", ({ transform }) => {
  view.at = transform;
  world.setAttribute("transform", transform);
  requestDraw();
});

// The page scrolls with a plain wheel; Control and wheel, or a pinch, zoom the graph.
function mayZoom(event) {
  if (event.type === "wheel") return event.ctrlKey || event.metaKey || document.fullscreenElement;
  return !event.button && event.type !== "dblclick";
}

function showGraph(graph) {
  view.scene = graph.scene ??= sceneOf(graph);
  selectBox(null);
  openSome(view.scene);
  redraw();
  showStart();
  document.getElementById("flow-function").value = data.functions.indexOf(graph);
}

// Open modules from the outside in while the drawing stays small.
function openSome(scene) {
  if (scene.opened) return;
  scene.opened = true;
  let queue = [...scene.root.children];
  let shown = queue.length;
  while (queue.length) {
    const box = queue.shift();
    if (!box.children.length) continue;
    if (shown > 1 + scene.inputs.size + scene.outputs.length && shown + box.children.length > 60) continue;
    box.open = true;
    shown += box.children.length - 1;
    queue.push(...box.children);
  }
}

function redraw() {
  lay(view.scene.root);
  view.built.clear();
  world.replaceChildren();
  buildBox(view.scene.root, world, 0, 0);
  drawNow();
}

// Elements of a box are made when it comes into view, and those of its inside when that is large
// enough to be seen.
function buildBox(box, holder, left, top) {
  const group = drawing("g", { class: boxClass(box), transform: `translate(${box.x ?? 0} ${box.y ?? 0})` });
  box.place = { left, top, right: left + box.width, bottom: top + box.height };
  box.group = group;
  if (box.kind !== "root") decorate(box, group);
  holder.append(group);
  if (box.open) view.built.set(box, { group, left, top, inside: null });
  view.boxOf ??= new WeakMap();
  view.boxOf.set(group, box);
}

function decorate(box, group) {
  const round = box.kind === "port" ? box.height / 2 : 6;
  group.append(drawing("rect", { class: "frame", width: box.width, height: box.height, rx: round }));
  const sub = subtitle(box);
  const place = box.open ? { x: 10, y: 18 } : { x: box.width / 2, y: sub ? 17 : 18 };
  const title = drawing("text", { class: "title", ...place });
  title.textContent = box.children.length ? `${box.open ? "▾" : "▸"} ${cut(box.label)}` : cut(box.label);
  group.append(title);
  if (box.open) {
    group.append(drawing("rect", { class: "head", width: box.width, height: TITLE, rx: round }));
  } else if (sub) {
    [sub, box.weight ?? ""].filter(Boolean).forEach((line, index) => {
      const small = drawing("text", { class: "sub", x: box.width / 2, y: 32 + 14 * index });
      small.textContent = cut(line);
      group.append(small);
    });
  }
  const said = drawing("title", {});
  said.textContent = describe(box);
  group.append(said);
}

function describe(box) {
  if (box.op) return [titleOf(box.op), typesOf(box.op), moduleOf(box.op), unitText(box.op), milliseconds(box.op.ms)].filter(Boolean).join("\n");
  if (!box.totals) return `${box.label} ${box.sub ?? ""}`;
  return [box.path ?? box.label, ...figureTexts(box.totals)].join("\n");
}

const unitText = (op) => (op.unit === undefined ? "" : `region ${op.run} on ${text(op.unit)}, an estimate`);

function figureTexts(totals) {
  return [
    counted(totals.ops, "op"),
    totals.parameters ? `${quantity(totals.parameters)} parameters` : "",
    totals.macs ? `${quantity(totals.macs)} multiply-adds` : "",
    totals.bytes ? bytes(totals.bytes) : "",
    totals.ms ? milliseconds(totals.ms) : "",
  ].filter(Boolean);
}

const categoryOf = (op) => CATEGORIES.find(([, , test]) => test.test(titleOf(op)))[0];

function boxClass(box) {
  const classes = ["box", box.kind];
  if (box.open) classes.push("open");
  if (view.selected === box) classes.push("selected");
  if (view.color === "time") classes.push(`heat${heatOf(box)}`);
  else if (view.color === "unit") classes.push(...unitClasses(box));
  else if (box.op) classes.push(called(box.op) ? "composite" : categoryOf(box.op));
  return classes.join(" ");
}

// The estimated unit of the ops in a box; a box within one region is outlined.
function unitClasses(box) {
  const placed = opsIn(box).filter((op) => op.unit !== undefined);
  if (!placed.length) return [];
  const [first] = placed;
  const unit = placed.every((op) => op.unit === first.unit) ? text(first.unit) : "several";
  return placed.every((op) => op.run === first.run) ? [`unit-${unit}`, "region"] : [`unit-${unit}`];
}

function opsIn(box) {
  return box.within ??= box.op ? [box.op] : box.children.flatMap(opsIn);
}

// Five steps of heat, by the share of the time of the whole graph.
function heatOf(box) {
  const whole = trees.get(view.scene.graph).tree.ms || 1;
  const share = (box.op?.ms ?? box.totals?.ms ?? 0) / whole;
  return [0.002, 0.01, 0.03, 0.1].filter((limit) => share >= limit).length;
}

let pending = false;
function requestDraw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    drawNow();
  });
}

// Whether the inside of a box can be told apart: modules from 10 pixels on, ops from 5.
function large(box, scale) {
  return box.height * scale > 10 && (scale > 0.12 || box.children.some((child) => child.open));
}

function drawNow() {
  const at = view.at ?? d3.zoomIdentity;
  world.classList.toggle("far", at.k < 0.3);
  const { clientWidth, clientHeight } = flowSvg;
  const [left, top] = at.invert([0, 0]);
  const [right, bottom] = at.invert([clientWidth, clientHeight]);
  const seen = ({ place }) => {
    return place.left < right && place.right > left && place.top < bottom && place.bottom > top;
  };
  for (const [box, built] of view.built) {
    const enough = box.kind === "root" || large(box, at.k);
    const on = enough && seen(box);
    built.group.classList.toggle("small", !enough);
    if (on && !built.inside) fillGroup(box, built);
    built.inside?.classList.toggle("off", !on);
  }
}

function fillGroup(box, built) {
  built.inside = drawing("g", {});
  for (const edge of box.edges) built.inside.append(edgePath(edge));
  for (const child of box.children) {
    buildBox(child, built.inside, built.left + child.x, built.top + child.y);
  }
  built.group.append(built.inside);
  const title = built.group.querySelector(":scope > .title");
  if (title) built.group.append(title); // over the edges that enter the box
}

function edgePath(edge) {
  const path = drawing("path", { class: edgeClass(edge), d: curve(edge.points) });
  edge.path = path;
  return path;
}

const touches = (edge) => {
  const { selected } = view;
  return selected && (edge.from === selected || edge.to === selected || edge.source === selected);
};
function edgeClass(edge) {
  const arrow = edge.to && !edge.to.open ? " arrow" : "";
  return `edge${arrow}${touches(edge) ? " near" : ""}`;
}

// A smooth line (a cubic B-spline) through points, vertical at both ends.
function curve(points) {
  const first = points[0];
  const last = points.at(-1);
  const bend = Math.min(10, Math.abs(last.y - first.y) / 4);
  const way = [first, { x: first.x, y: first.y + bend }, ...points.slice(1, -1)];
  way.push({ x: last.x, y: last.y - bend }, last, last);
  const show = (...numbers) => numbers.map((number) => number.toFixed(1)).join(" ");
  let [a, b] = [first, way[1]];
  let drawn = `M${show(a.x, a.y)}L${show((5 * a.x + b.x) / 6, (5 * a.y + b.y) / 6)}`;
  for (const c of way.slice(2)) {
    drawn += `C${show((2 * a.x + b.x) / 3, (2 * a.y + b.y) / 3, (a.x + 2 * b.x) / 3, (a.y + 2 * b.y) / 3)}`;
    drawn += ` ${show((a.x + 4 * b.x + c.x) / 6, (a.y + 4 * b.y + c.y) / 6)}`;
    [a, b] = [b, c];
  }
  return `${drawn}L${show(last.x, last.y)}`;
}

function toggleBox(box, open = !box.open) {
  if (!box.children.length || box.open === open) return;
  const before = screenTop(box);
  box.open = open;
  disturb(box);
  redraw();
  keepPlace(box, before);
}

// Where a box is in the coordinates of the drawing.
function positionOf(box) {
  let [x, y] = [0, 0];
  for (let at = box; at; at = at.parent) [x, y] = [x + (at.x ?? 0), y + (at.y ?? 0)];
  return { x, y };
}

function screenTop(box) {
  const { x, y } = positionOf(box);
  return view.at.apply([x + box.width / 2, y]);
}

// Move the drawing so that a box stays where it was.
function keepPlace(box, before) {
  const [x, y] = screenTop(box);
  moveTo(view.at.translate((before[0] - x) / view.at.k, (before[1] - y) / view.at.k));
}

function moveTo(transform, smooth = false) {
  const target = d3.select(flowSvg);
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  (smooth && !still ? target.transition().duration(250) : target).call(zoom.transform, transform);
}

function showStart() {
  const { width } = view.scene.root;
  const { clientWidth } = flowSvg;
  const k = Math.min(1, Math.max(0.45, clientWidth / (width + 20)));
  moveTo(d3.zoomIdentity.translate((clientWidth - width * k) / 2, 8).scale(k));
}

// The width of the frame beside the details.
function freeWidth() {
  const { clientWidth } = flowSvg;
  return flowDetail.hidden || clientWidth < 640 ? clientWidth : clientWidth - flowDetail.offsetWidth;
}

function fitAll() {
  const { width, height } = view.scene.root;
  const { clientHeight } = flowSvg;
  const k = Math.max(0.02, Math.min(1.5, freeWidth() / width, clientHeight / height) * 0.96);
  const left = (freeWidth() - width * k) / 2;
  moveTo(d3.zoomIdentity.translate(left, (clientHeight - height * k) / 2).scale(k), true);
}

function centerOn(box) {
  const { x, y } = positionOf(box);
  const k = Math.max(view.at.k, 0.8);
  const { clientHeight } = flowSvg;
  const space = freeWidth();
  const middle = [x + box.width / 2, y + Math.min(box.height / 2, clientHeight / 2 / k)];
  moveTo(d3.zoomIdentity.translate(space / 2 - middle[0] * k, clientHeight / 2 - middle[1] * k).scale(k), true);
}

// Open or close everything; lay out in steps so that the page keeps responding.
async function openAll(open) {
  const { scene } = view;
  const inside = scene.boxes.filter((box) => box.children.length && box !== scene.root);
  for (const box of inside) if (box.open !== open) Object.assign(box, { open }) && disturb(box);
  selectBox(null);
  let began = performance.now();
  for (const box of inside.reverse()) {
    if (open) lay(box);
    if (performance.now() - began > 40) {
      flowStatus.textContent = "Laying out the graph …";
      await new Promise(requestAnimationFrame);
      began = performance.now();
    }
  }
  flowStatus.textContent = "";
  if (view.scene !== scene) return;
  redraw();
  if (open) fitAll();
  else showStart();
}

function selectBox(box) {
  const before = view.selected;
  view.selected = box;
  for (const each of [before, box]) each?.group?.setAttribute("class", boxClass(each));
  for (const owner of view.built.keys()) {
    for (const edge of owner.edges) edge.path?.setAttribute("class", edgeClass(edge));
  }
  flowDetail.hidden = !box;
  if (box) flowDetail.replaceChildren(...boxDetail(box));
}

function boxDetail(box) {
  const close = button("×", "close", () => selectBox(null));
  close.setAttribute("aria-label", "Close");
  const title = make("h3", "", make("code", "name", box.op ? `#${box.op.id} ${box.label}` : box.path ?? box.label));
  return [close, title, ...(box.op ? opDetail(box) : moduleDetail(box))];
}

function opDetail(box) {
  const { op } = box;
  const buttons = [button("Show in modules", "more", () => reveal(op))];
  if (called(op)) buttons.push(button("Draw its graph", "more", () => showGraph(called(op))));
  const lines = [op.ms === undefined ? "" : milliseconds(op.ms), op.macs ? `${quantity(op.macs)} multiply-adds` : ""];
  return [
    make("p", "quiet", lines.filter(Boolean).join(", ")),
    detail(op, stepRow, showInGraph),
    make("div", "", ...buttons),
  ];
}

function moduleDetail(box) {
  if (!box.totals) return [make("p", "", make("code", "", box.sub ?? ""))];
  const list = make("ul", "", ...figureTexts(box.totals).map((line) => make("li", "", line)));
  const toggle = button(box.open ? "Close" : "Open", "more", () => {
    toggleBox(box);
    selectBox(box);
  });
  const listed_ = box.kind === "module" ? [button("Show in modules", "more", () => revealModule(box.path))] : [];
  return [list, make("div", "", toggle, ...listed_)];
}

// Open the boxes around an op, and move to it.
function showInGraph(op) {
  startFlow();
  const outer = outermost(op);
  if (view.scene?.graph !== op.graph) showGraph(op.graph);
  const box = view.scene.leaves.get(outer);
  if (box) goTo(box);
  document.getElementById("dataflow").scrollIntoView({ block: "nearest" });
}

function goTo(box) {
  for (const outer of around(box)) {
    if (!outer.open) Object.assign(outer, { open: true }) && disturb(outer);
  }
  redraw();
  selectBox(box);
  centerOn(box);
}

function flowSearch(step) {
  const query = document.getElementById("flow-search").value.trim();
  if (!query) {
    flowStatus.textContent = "";
    return;
  }
  if (view.query !== query) {
    const { scene } = view;
    const lower = query.toLowerCase();
    const modules = scene.boxes.filter((box) => {
      return box.kind === "module" && box.path.toLowerCase().endsWith(lower);
    });
    const ops = matching(query).map(({ op }) => scene.leaves.get(op)).filter(Boolean);
    Object.assign(view, { query, hits: [...modules, ...ops], hit: -1 });
  }
  const { hits } = view;
  if (!hits.length) {
    flowStatus.textContent = `Nothing found for “${query}”`;
    return;
  }
  view.hit = (view.hit + step + hits.length) % hits.length;
  goTo(hits[view.hit]);
  flowStatus.textContent = `${view.hit + 1} of ${hits.length}; Enter for the next`;
}

function pressed(event) {
  const group = event.target.closest?.("g.box");
  const box = group && view.boxOf.get(group);
  if (!box || box.kind === "root") {
    selectBox(null);
    return;
  }
  if (box.children.length) toggleBox(box);
  selectBox(box);
}

const MOVES = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };

function flowKey(event) {
  const target = d3.select(flowSvg);
  if (MOVES[event.key]) target.call(zoom.translateBy, ...MOVES[event.key].map((step) => step / view.at.k));
  else if (event.key === "+" || event.key === "=") target.call(zoom.scaleBy, 1.25);
  else if (event.key === "-") target.call(zoom.scaleBy, 0.8);
  else if (event.key === "Enter" && view.selected) toggleBox(view.selected);
  else if (event.key === "Escape") selectBox(null);
  else return;
  event.preventDefault();
}

function legend() {
  const timed = view.color === "time";
  const steps = ["under 0.2 %", "0.2 %", "1 %", "3 %", "10 % of the time or more"];
  const kinds = [...CATEGORIES, ["composite", "Composites"]];
  const units = ["neural_engine", "gpu", "cpu", "several"].map((unit) => [`unit-${unit}`, unit]);
  const rows = timed ? steps.map((label, index) => [`heat${index}`, label]) : view.color === "unit" ? units : kinds;
  document.getElementById("flow-legend").replaceChildren(
    ...rows.map(([name, label]) => make("span", `key ${name}`, label)),
  );
}

// Draw the graph when it comes into view, so that a large page opens at once.
function startFlowInView() {
  const watch = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    watch.disconnect();
    startFlow();
  }, { rootMargin: "400px" });
  watch.observe(flowSvg);
}

function arrows() {
  const defs = drawing("defs", {});
  const size = { viewBox: "0 0 8 8", refX: 7.5, refY: 4, markerWidth: 8, markerHeight: 8 };
  for (const id of ["arrow", "arrow-near"]) {
    const marker = drawing("marker", { id, ...size, orient: "auto", markerUnits: "userSpaceOnUse" });
    marker.append(drawing("path", { d: "M0 1L8 4L0 7z" }));
    defs.append(marker);
  }
  return defs;
}

function startFlow() {
  if (view.started) return;
  view.started = true;
  flowSvg.append(arrows(), world);
  d3.select(flowSvg).call(zoom);
  const functions = document.getElementById("flow-function");
  data.functions.forEach((graph, index) => {
    const option = make("option", "", text(graph.composite) || text(graph.name));
    functions.append(Object.assign(option, { value: index }));
  });
  functions.hidden = data.functions.length < 2;
  const colors = document.getElementById("flow-color");
  const timed = data.functions.some((graph) => trees.get(graph).tree.ms);
  const placed = data.functions.some((graph) => graph.ops.some((op) => op.unit !== undefined));
  const choices = [["kind", "Color by kind of op"], timed && ["time", "Color by time"], placed && ["unit", "Color by unit"]];
  for (const [value, label] of choices.filter(Boolean)) {
    colors.append(Object.assign(make("option", "", label), { value }));
  }
  colors.hidden = !timed && !placed;
  listenFlow(functions, colors);
  legend();
  const first = data.functions.find((graph) => !graph.private) ?? data.functions[0];
  if (first) showGraph(first);
}

function listenFlow(functions, colors) {
  const on = (id, act) => document.getElementById(id).addEventListener("click", act);
  const target = d3.select(flowSvg);
  on("flow-in", () => target.transition().duration(150).call(zoom.scaleBy, 1.4));
  on("flow-out", () => target.transition().duration(150).call(zoom.scaleBy, 0.7));
  on("flow-fit", fitAll);
  on("flow-open", () => openAll(true));
  on("flow-close", () => openAll(false));
  on("flow-full", () => {
    const frame = document.getElementById("flow-frame");
    if (document.fullscreenElement) document.exitFullscreen();
    else frame.requestFullscreen?.();
  });
  flowSvg.addEventListener("click", pressed);
  flowSvg.addEventListener("keydown", flowKey);
  functions.addEventListener("change", () => showGraph(data.functions[Number(functions.value)]));
  colors.addEventListener("change", () => {
    view.color = colors.value;
    legend();
    redraw();
  });
  const field_ = document.getElementById("flow-search");
  field_.addEventListener("keydown", (event) => {
    if (event.key === "Enter") flowSearch(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") field_.value = "";
  });
  new ResizeObserver(requestDraw).observe(flowSvg);
}
