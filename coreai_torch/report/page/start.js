// Assemble the page.

function start() {
  const grown = data.functions.map((graph) => [graph, treeOf(graph)]);
  const timed = grown.filter(([graph]) => !graph.private).map(([, { ms }]) => ms);
  const whole = timed.reduce((total, ms) => total + ms, 0);
  const parts = grown.map(([graph, tree]) => [graph, graphPart(graph, tree, whole)]);
  const open = parts.filter(([graph]) => !graph.private);
  const within = parts.filter(([graph]) => graph.private);
  tree.append(...open.map(([, part]) => part));
  if (within.length) {
    tree.append(make("h3", "", "Called graphs"), ...within.map(([, part]) => part));
  }
  if (open.length) open[0][1].unfold();
  document.getElementById("weights-list").append(...weightList());
  for (const key of ["parameters", "macs", "bytes", "ms"]) {
    const any = grown.some(([, each]) => each[key]);
    document.getElementById("graph").classList.toggle(`without-${key}`, !any);
  }
  const timedFirst = grown.map(([graph]) => graph).filter((graph) => !graph.private);
  timedFirst.sort((a, b) => trees.get(b).tree.ms - trees.get(a).tree.ms);
  if (timedFirst.length) startFlame(timedFirst[0]);
  startFlowInView();
}

const isField = (element) => ["INPUT", "SELECT"].includes(element?.tagName);

function listen() {
  field.addEventListener("input", () => search(field.value));
  document.getElementById("unfold").addEventListener("click", () => {
    leaveSearch();
    unfoldModules();
  });
  document.getElementById("fold").addEventListener("click", foldAll);
  document.addEventListener("click", (event) => {
    const pressed = event.target.closest?.("[data-search], [data-module]");
    if (pressed?.dataset.search !== undefined) seek(pressed.dataset.search);
    else if (pressed) revealModule(pressed.dataset.module);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !isField(document.activeElement)) {
      event.preventDefault();
      field.focus();
    } else if (event.key === "Escape" && document.activeElement === field) {
      leaveSearch();
    }
  });
}

start();
listen();
