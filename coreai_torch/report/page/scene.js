// The boxes of the drawn graph: modules that contain modules and ops, and the edges between them.

const MOST = 120; // boxes inside one box; more are grouped in program order
const GROUP = 50;

// Return the root box of a function, with the edges of every box.
function sceneOf(graph) {
  const scene = {
    graph, leaves: new Map(), inputs: new Map(), outputs: [], boxes: [], constants: new Map(),
  };
  const name = text(graph.composite) || text(graph.name);
  scene.root = makeBox(scene, "root", name, null, { path: "" });
  scene.root.open = true;
  for (const [value, name, type] of graph.arguments) {
    const box = makeBox(scene, "port", text(name), scene.root);
    scene.inputs.set(value, Object.assign(box, { sub: text(type) }));
  }
  const own = graph.ops.filter((op) => op.parent === undefined);
  for (const op of own.filter(isConstant)) {
    const [user] = usersOf(op).map(outermost);
    if (user) push(scene.constants, user, op);
  }
  fillBox(scene, scene.root, own.filter((op) => !isConstant(op) && !isEnd(op)));
  (graph.outputs ?? []).forEach((name) => {
    scene.outputs.push(makeBox(scene, "port", text(name), scene.root));
  });
  for (const { source, target } of edgesOf(scene)) routeEdge(source, target);
  return scene;
}

function makeBox(scene, kind, label, parent, more = {}) {
  const box = {
    kind, label, parent, depth: parent ? parent.depth + 1 : 0, children: [], open: false,
    inner: new Map(), enters: new Map(), leaves: new Map(), ...more,
  };
  parent?.children.push(box);
  scene.boxes.push(box);
  return box;
}

// Add the ops of a module to its box, grouped by submodule, in program order.
function fillBox(scene, box, ops) {
  const entries = withoutCycles(entriesWithin(ops, box.path));
  const groups = entries.length > MOST ? inGroups(entries) : [entries];
  for (const group of groups) {
    const holder = groups.length === 1 ? box : groupBox(scene, box, group);
    for (const entry of group) {
      if (entry.name === undefined) leafBox(scene, holder, entry.ops[0]);
      else moduleBox(scene, holder, entry, box);
    }
  }
}

// Return the own ops of a module, one by one, and its submodules with all their ops.
function entriesWithin(ops, path) {
  const entries = new Map();
  for (const op of ops) {
    const inner = path ? moduleOf(op).slice(path.length + 1) : moduleOf(op);
    const [name] = inner.split(".", 1);
    const key = name || op;
    if (!entries.has(key)) entries.set(key, { name: name || undefined, ops: [] });
    entries.get(key).ops.push(op);
  }
  return [...entries.values()];
}

// A module that is called several times may come before and after another one. Its separate calls
// become boxes, so that values flow downwards.
function withoutCycles(entries) {
  const owner = new Map(entries.flatMap((entry) => entry.ops.map((op) => [op, entry])));
  const before = new Map(entries.map((entry) => [entry, new Set()]));
  for (const [op, entry] of owner) {
    for (const source of sourcesOf(op)) {
      const other = owner.get(source);
      if (other && other !== entry) before.get(entry).add(other);
    }
  }
  const cyclic = new Set(entries);
  for (let changed = true; changed; ) {
    changed = false;
    for (const entry of cyclic) {
      if ([...before.get(entry)].some((other) => cyclic.has(other))) continue;
      cyclic.delete(entry);
      changed = true;
    }
  }
  const found = entries.flatMap((entry) => (cyclic.has(entry) && entry.name ? calls(entry) : [entry]));
  return found.sort((a, b) => a.ops[0].index - b.ops[0].index);
}

// Return the connected parts of a module.
function calls(entry) {
  const own = new Set(entry.ops);
  const leader = new Map(entry.ops.map((op) => [op, op]));
  const find = (op) => {
    while (leader.get(op) !== op) op = leader.get(op);
    return op;
  };
  for (const op of entry.ops) {
    for (const source of sourcesOf(op)) if (own.has(source)) leader.set(find(op), find(source));
  }
  const parts = new Map();
  for (const op of entry.ops) push(parts, find(op), op);
  return [...parts.values()].map((ops) => ({ name: entry.name, ops }));
}

// The ops whose results an op uses, outermost ones in place of those inside a region.
function sourcesOf(op) {
  if (op.sources) return op.sources;
  const inside = op.graph.inner.get(op.index) ?? [];
  const values = [...(op.operands ?? []), ...inside.flatMap((each) => each.operands ?? [])];
  const makers = values.map((value) => op.graph.makers.get(value)?.op).filter(Boolean);
  op.sources = new Set(makers.map(outermost).filter((maker) => maker !== op && !isConstant(maker)));
  return op.sources;
}

function inGroups(entries) {
  const groups = [];
  for (let first = 0; first < entries.length; first += GROUP) {
    groups.push(entries.slice(first, first + GROUP));
  }
  return groups;
}

function totalsOf(scene, ops) {
  const totals = folder("", "");
  for (const op of ops) {
    tally(totals, op);
    for (const constant of scene.constants.get(op) ?? []) tally(totals, constant);
  }
  return totals;
}

function groupBox(scene, box, entries) {
  const named = ({ name, ops }) => name ?? `#${ops[0].id}`;
  const label = `${named(entries[0])} – ${named(entries.at(-1))}`;
  const totals = totalsOf(scene, entries.flatMap(({ ops }) => ops));
  return makeBox(scene, "group", label, box, { totals, path: box.path });
}

// Add a module; one without own ops and with a single submodule is shown together with it.
function moduleBox(scene, parent, { name, ops }, outer) {
  let path = outer.path ? `${outer.path}.${name}` : name;
  let label = name;
  for (let only = onlyModule(ops, path); only; only = onlyModule(ops, path)) {
    label += `.${only}`;
    path += `.${only}`;
  }
  const box = makeBox(scene, "module", numbered(label, path), parent, { totals: totalsOf(scene, ops), path });
  fillBox(scene, box, ops);
}

function onlyModule(ops, path) {
  const names = new Set(ops.map((op) => moduleOf(op).slice(path.length + 1).split(".", 1)[0]));
  const [name] = names;
  return names.size === 1 ? name : "";
}

// The number of a module in a list says little without the name of the list: `layer1.0`.
function numbered(label, path) {
  return /^\d/.test(label) ? path.split(".").slice(-1 - label.split(".").length).join(".") : label;
}

function leafBox(scene, parent, op) {
  const weights = (scene.constants.get(op) ?? []).filter((each) => each.parameters > 1);
  const [largest] = weights.sort((a, b) => b.parameters - a.parameters);
  const weight = largest ? `weight ${typesOf(largest)}` : "";
  const box = makeBox(scene, "op", titleOf(op), parent, { op, sub: typesOf(op), weight });
  scene.leaves.set(op, box);
}

// Return the edges between ops; uses inside a region are uses of the op around it.
function edgesOf(scene) {
  const { graph } = scene;
  const edges = [];
  for (const op of graph.ops) {
    const end = text(op.op) === "output" && op.parent === undefined;
    (op.operands ?? []).forEach((value, index) => {
      const source = sourceBox(scene, value);
      const target = end ? scene.outputs[index] : scene.leaves.get(outermost(op));
      if (source && target && source !== target) edges.push({ source, target });
    });
  }
  return edges;
}

function sourceBox(scene, value) {
  const maker = scene.graph.makers.get(value);
  return maker?.op ? scene.leaves.get(outermost(maker.op)) : scene.inputs.get(value);
}

function outermost(op) {
  while (op.parent !== undefined) op = op.graph.ops[op.parent];
  return op;
}

// Record an edge in the box around both ends, and its way through the boxes between.
function routeEdge(source, target) {
  let from = source;
  let to = target;
  while (from.parent !== to.parent) {
    if (from.depth >= to.depth) {
      push(from.parent.leaves, source, from);
      from = from.parent;
    } else {
      push(to.parent.enters, source, to);
      to = to.parent;
    }
  }
  const inner = from.parent.inner;
  if (!inner.has(from)) inner.set(from, new Map());
  push(inner.get(from), to, source);
}

// Return the boxes around a box, outermost first.
function around(box) {
  const found = [];
  for (let at = box.parent; at; at = at.parent) found.unshift(at);
  return found;
}
