// Search the data, including ops without rows yet. Entrypoints come first, then called graphs,
// then constants.

let sought = null; // the texts of all ops, built at the first search

function texts() {
  if (!sought) {
    const graphs = [...data.functions].sort((a, b) => a.private - b.private);
    const every = graphs.flatMap((graph) => graph.ops);
    const ordered = [...every.filter(isStep), ...every.filter(isConstant)];
    sought = ordered.map((op) => ({ op, hay: hayOf(op) }));
  }
  return sought;
}

function hayOf(op) {
  const words = [titleOf(op), text(op.op), moduleOf(op), torchText(op), typesOf(op)];
  const more = [sourceOf(op), text(op.attributes), text(op.value), text(op.name), text(op.callers), `#${op.id}`];
  return [...words, ...more].join("\n").toLowerCase();
}

// Return the ops whose texts contain all words.
function matching(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return texts().filter(({ hay }) => words.every((word) => hay.includes(word)));
}

const field = document.getElementById("search");
const results = document.getElementById("results");
const found = document.getElementById("found");
const tree = document.getElementById("tree");
document.getElementById("columns").append(columnTitles());

function search(query) {
  const on = query.trim() !== "";
  results.hidden = !on;
  tree.hidden = on;
  results.replaceChildren();
  found.textContent = "";
  if (!on) return;
  const hits = matching(query).map(({ op }) => op);
  found.textContent = hits.length ? `${counted(hits.length, "op")} found` : "Nothing found";
  results.append(listed(hits, (op) => result(op), 100));
}

function result(op) {
  const made = row(op, placeOf(op));
  if (!isConstant(op)) {
    const inTree = button("Show in modules", "more", () => reveal(op));
    const drawn = button("Show in the graph", "more", () => showInGraph(op));
    made.addEventListener("toggle", () => made.lastChild.append(inTree, drawn), { once: true });
  }
  return made;
}

function placeOf(op) {
  const graph = op.graph.private ? text(op.graph.composite) || text(op.graph.name) : "";
  return [graph, moduleOf(op)].filter(Boolean).join(" · ");
}

function leaveSearch() {
  if (field.value) {
    field.value = "";
    search("");
  }
}

function seek(query) {
  field.value = query;
  search(query);
  document.getElementById("graph").scrollIntoView();
  field.focus({ preventScroll: true });
}
