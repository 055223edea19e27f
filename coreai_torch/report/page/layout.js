// Lay out the drawn graph: every open box on its own with dagre, innermost first, so that thousands
// of ops are many small layouts.

const FONT = '13px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';
const PAD = 14;
const TITLE = 26;
const LONGEST = 34; // characters of a label
const ruler = document.createElement("canvas").getContext("2d");
const widths = new Map();

function textWidth(label, font = FONT) {
  const key = font + label;
  if (!widths.has(key)) {
    ruler.font = font;
    widths.set(key, ruler.measureText(label).width);
  }
  return widths.get(key);
}

const SMALL_FONT = FONT.replace("13px", "11px");
const cut = (label) => (label.length > LONGEST ? `${label.slice(0, LONGEST - 1)}…` : label);

// The second line of a box: the type of an op, the number of ops of a module.
function subtitle(box) {
  if (box.totals) return `${counted(box.totals.ops, "op")}`;
  return box.sub ?? "";
}

function lay(box) {
  if (box.laid) return;
  const sub = subtitle(box);
  const small = [sub, box.weight ?? ""].map((line) => textWidth(cut(line), SMALL_FONT));
  const wide = Math.max(textWidth(cut(box.label)), ...small);
  box.width = Math.ceil(Math.max(wide + 2 * PAD + (box.children.length ? 14 : 0), 64));
  box.height = (sub ? 40 : 28) + (box.weight ? 14 : 0);
  if (box.open) layInside(box);
  box.laid = true;
}

const known = new Map(); // finished layouts; the layers of a model often look the same

// Return the graph with positions; a graph of the same sizes and edges is laid out once.
function arranged(graph) {
  const nodes = graph.nodes().map((key) => [key, graph.node(key).width, graph.node(key).height]);
  const edges = graph.edges().map(({ v, w }) => [v, w]);
  const key = JSON.stringify([nodes, edges]);
  if (!known.has(key)) {
    dagre.layout(graph);
    known.set(key, graph);
  }
  return known.get(key);
}

function layInside(box) {
  box.children.forEach(lay);
  let graph = new dagre.graphlib.Graph({ compound: false });
  graph.setGraph({ rankdir: "TB", nodesep: 16, ranksep: 26, edgesep: 10, marginx: 0, marginy: 0 });
  graph.setDefaultEdgeLabel(() => ({}));
  const keys = new Map(box.children.map((child, index) => [child, `n${index}`]));
  for (const [child, key] of keys) graph.setNode(key, { width: child.width, height: child.height });
  const pairs = innerPairs(box, keys, graph);
  const ports = addPorts(box, keys, graph);
  graph = arranged(graph);
  placeChildren(box, keys, graph);
  box.edges = [...innerEdges(pairs, keys, graph, box), ...portEdges(ports, keys, graph, box)];
}

function innerPairs(box, keys, graph) {
  const pairs = [];
  for (const [from, targets] of box.inner) {
    for (const [to, sources] of targets) {
      graph.setEdge(keys.get(from), keys.get(to), { weight: 2 });
      pairs.push({ from, to, sources: new Set(sources) });
    }
  }
  return pairs;
}

// Values that enter or leave an open box pass a point of its border. Two extra nodes, joined to the
// points by heavy edges, keep the points above and below all other nodes.
function addPorts(box, keys, graph) {
  const ports = [];
  if (box.kind === "root") return ports;
  const add = (table, way) => {
    let number = 0;
    for (const [source, children] of table) {
      const key = `${way}${number++}`;
      graph.setNode(key, { width: 2, height: 2 });
      for (const child of new Set(children)) {
        const inside = keys.get(child);
        const [a, b] = way === "enter" ? [key, inside] : [inside, key];
        graph.setEdge(a, b, { weight: 1 });
        ports.push({ key, way, source, child, a, b });
      }
    }
  };
  add(box.enters, "enter");
  add(box.leaves, "leave");
  joinPorts(graph, ports);
  return ports;
}

function joinPorts(graph, ports) {
  const real = graph.nodes();
  graph.setNode("top", { width: 1, height: 1 });
  graph.setNode("bottom", { width: 1, height: 1 });
  const kinds = new Map(ports.map(({ key, way }) => [key, way]));
  for (const key of real) {
    const way = kinds.get(key);
    if (way === "enter") graph.setEdge("top", key, { weight: 50, minlen: 1 });
    else if (way === "leave") graph.setEdge(key, "bottom", { weight: 50, minlen: 1 });
    else {
      if (!graph.predecessors(key).length) graph.setEdge("top", key, { weight: 0, minlen: 2 });
      if (!graph.successors(key).length) graph.setEdge(key, "bottom", { weight: 0, minlen: 2 });
    }
  }
}

function placeChildren(box, keys, graph) {
  const edge = { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity };
  const meet = (x, y) => {
    edge.left = Math.min(edge.left, x);
    edge.right = Math.max(edge.right, x);
    edge.top = Math.min(edge.top, y);
    edge.bottom = Math.max(edge.bottom, y);
  };
  for (const [child, key] of keys) {
    const { x, y } = graph.node(key);
    meet(x - child.width / 2, y - child.height / 2);
    meet(x + child.width / 2, y + child.height / 2);
  }
  for (const { points } of graph.edges().map((e) => graph.edge(e))) {
    for (const { x, y } of points ?? []) if (y > edge.top && y < edge.bottom) meet(x, y);
  }
  const head = box.kind === "root" ? 0 : TITLE;
  box.shift = { x: PAD - edge.left, y: PAD + head - edge.top };
  for (const [child, key] of keys) {
    const { x, y } = graph.node(key);
    child.x = x - child.width / 2 + box.shift.x;
    child.y = y - child.height / 2 + box.shift.y;
  }
  const inside = edge.right - edge.left + 2 * PAD;
  box.width = Math.max(inside, textWidth(cut(box.label)) + 2 * PAD + 20);
  const extra = (box.width - inside) / 2;
  for (const child of box.children) child.x += extra;
  box.shift.x += extra;
  box.height = edge.bottom - edge.top + 2 * PAD + head;
  box.enterAt = new Map();
  box.leaveAt = new Map();
}

const shifted = (points, box) => {
  return points.map(({ x, y }) => ({ x: x + box.shift.x, y: y + box.shift.y }));
};

// The x of the point where a value leaves or enters a child; its middle if the child is closed.
function border(child, table, source, otherwise) {
  const known = child.open ? child[table].get(source) : undefined;
  return known === undefined ? otherwise : child.x + known;
}

function innerEdges(pairs, keys, graph, box) {
  const edges = [];
  for (const { from, to, sources } of pairs) {
    const way = shifted(graph.edge(keys.get(from), keys.get(to)).points, box);
    const drawn = new Set();
    for (const source of sources) {
      const points = [...way];
      points[0] = { x: border(from, "leaveAt", source, way[0].x), y: from.y + from.height };
      points[points.length - 1] = { x: border(to, "enterAt", source, way.at(-1).x), y: to.y };
      if (from.y > to.y) [points[0], points[points.length - 1]] = [way[0], way.at(-1)];
      const key = `${points[0].x} ${points.at(-1).x}`;
      if (!drawn.has(key)) edges.push({ points, from, to, source });
      drawn.add(key);
    }
  }
  return edges;
}

function portEdges(ports, keys, graph, box) {
  const edges = [];
  for (const { key, way, source, child, a, b } of ports) {
    const x = graph.node(key).x + box.shift.x;
    const inside = Math.min(Math.max(x, PAD), box.width - PAD);
    const points = shifted(graph.edge(a, b).points, box);
    if (way === "enter") {
      box.enterAt.set(source, inside);
      const rest = points.filter(({ y }) => y > TITLE);
      rest[rest.length - 1] = { x: border(child, "enterAt", source, rest.at(-1).x), y: child.y };
      edges.push({ points: [{ x: inside, y: 0 }, { x: inside, y: TITLE }, ...rest], to: child, source });
    } else {
      box.leaveAt.set(source, inside);
      const rest = points.filter(({ y }) => y < box.height);
      const y = child.y + child.height;
      rest[0] = { x: border(child, "leaveAt", source, rest[0].x), y };
      edges.push({ points: [...rest, { x: inside, y: box.height }], from: child, source });
    }
  }
  return edges;
}

// Forget the layout of a box and of the boxes around it.
function disturb(box) {
  for (let at = box; at; at = at.parent) at.laid = false;
}
