// The foldable graph: a tree of modules for each function, and navigation to an op.

const trees = new Map(); // from a function to its part of the page
const folders = new WeakMap(); // from a folder to its element

function graphPart(graph, tree, whole) {
  const kind = text(graph.composite) ? "composite" : graph.private ? "graph" : "function";
  const name = text(graph.composite) || text(graph.name);
  const main = [make("code", "name", name), make("span", "badge", kind)];
  const summary = columns(main, tree);
  const part = foldable(`function ${kind}`, summary, () => [entriesOf(tree, whole, part)]);
  trees.set(graph, { tree, part });
  return part;
}

function entriesOf(at, whole, holder) {
  const list = listed(at.entries, (entry) => {
    return entry.op ? kept(entry.op) : folderPart(entry.folder, whole);
  });
  holder.list = list;
  return list;
}

function folderPart(first, whole) {
  const { label, at } = shortened(first);
  const main = [make("code", "name", label), whole && bar(at.ms / whole)];
  const summary = columns(main, at);
  const part = foldable("module", summary, () => [entriesOf(at, whole, part)]);
  for (let inner = first; ; inner = inner.entries[0].folder) {
    folders.set(inner, part);
    if (inner === at) break;
  }
  return part;
}

// Open the folders around a module, and return the innermost element.
function unfoldTo(graph, path) {
  const { tree, part } = trees.get(graph);
  part.unfold();
  let at = tree;
  let element = part;
  for (const name of path ? path.split(".") : []) {
    const next = at.children.get(name);
    if (!next) break;
    if (!folders.has(next)) element.list.until((entry) => entry.folder === next);
    element = folders.get(next);
    element.unfold();
    at = next;
  }
  return { at, element };
}

function reveal(op) {
  leaveSearch();
  show(unfoldRow(op));
}

function unfoldRow(op) {
  if (op.parent !== undefined) {
    unfoldRow(op.graph.ops[op.parent]);
  } else {
    const { element } = unfoldTo(op.graph, moduleOf(op));
    if (!rowsOf.has(op)) element.list.until((entry) => entry.op === op);
  }
  const made = rowsOf.get(op);
  made.unfold();
  return made;
}

function revealModule(path) {
  leaveSearch();
  const graph = data.functions.find((each) => {
    return path.split(".").reduce((at, name) => at?.children.get(name), trees.get(each).tree);
  });
  if (graph) show(unfoldTo(graph, path).element);
}

function show(element) {
  const summary = element.querySelector("summary");
  summary.scrollIntoView({ block: "center" });
  summary.focus({ preventScroll: true });
}

// Open all modules of the entrypoints; rows of ops stay folded.
function unfoldModules() {
  for (const [graph, { part }] of trees) {
    if (!graph.private) part.unfold();
  }
  let closed = [];
  const next = () => document.querySelectorAll("#tree details.module:not([open])");
  while ((closed = [...next()]).length) closed.forEach((part) => part.unfold());
}

function foldAll() {
  for (const part of document.querySelectorAll("#tree details[open]")) part.open = false;
}
