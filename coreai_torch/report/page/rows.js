// Elements, and the row of an op. Names from a model become text, never markup.

function make(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children.filter(Boolean));
  return made;
}

function button(label, className, press) {
  const made = make("button", className, label);
  made.type = "button";
  made.addEventListener("click", press);
  return made;
}

function bar(share) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  const rect = document.createElementNS(space, "rect");
  svg.setAttribute("class", "bar");
  svg.setAttribute("aria-hidden", "true");
  rect.setAttribute("width", `${(100 * Math.min(share, 1)).toFixed(2)}%`);
  rect.setAttribute("height", "100%");
  rect.setAttribute("rx", "2");
  svg.append(rect);
  return svg;
}

// Return a part that is built when it is first opened.
function foldable(className, summary, build) {
  const details = make("details", className, make("summary", "", ...summary));
  let built = false;
  details.unfold = () => {
    if (!built) {
      built = true;
      details.append(...build());
    }
    details.open = true;
  };
  details.addEventListener("toggle", () => details.open && details.unfold());
  return details;
}

// Return a list that grows step by step; `until` grows it up to a given item.
const STEP = 200;

function listed(items, build, step = STEP) {
  const list = make("div", "rows");
  let shown = 0;
  const more = button("", "more", () => grow(shown + step));
  function grow(count) {
    const next = items.slice(shown, count).map(build);
    shown = Math.max(shown, Math.min(count, items.length));
    more.remove();
    list.append(...next);
    if (shown < items.length) {
      const left = items.length - shown;
      more.textContent = `Show ${Math.min(step, left)} more of ${left}`;
      list.append(more);
    }
  }
  grow(step);
  list.until = (test) => grow(items.findIndex(test) + 1);
  return list;
}

const rowsOf = new WeakMap(); // from an op to its row in the tree

function row(op, where = "", keep = stepRow) {
  const kind = called(op) ? (text(called(op).composite) ? "composite" : "called") : "";
  const summary = [
    make("span", "number", `#${op.id}`),
    make("code", "name", titleOf(op)),
    kind && make("span", "badge", kind === "called" ? "graph" : kind),
    where && make("span", "where", where),
    make("code", "type", typesOf(op)),
    op.ms !== undefined && make("span", "figure", milliseconds(op.ms)),
    isConstant(op) && make("span", "figure", bytes(op.bytes)),
  ];
  return foldable(`op ${kind}`, summary, () => [detail(op, keep)]);
}

function detail(op, keep) {
  const list = make("dl", "detail");
  const add = (title, ...content) => {
    if (content.some(Boolean)) list.append(make("dt", "", title), make("dd", "", ...content));
  };
  add("op", make("code", "", text(op.op)));
  add("module", moduleOf(op) && make("code", "", moduleOf(op)));
  add("torch", torchText(op) && make("code", "", torchText(op)));
  add("source", sourceOf(op) && make("code", "source", sourceOf(op)));
  add("inputs", ...(op.operands ?? []).map((value) => operand(op.graph, value)));
  add("used by", ...usersOf(op).filter((user) => !isEnd(user)).map((user) => jump(user)));
  add("attributes", op.attributes !== undefined && make("code", "", text(op.attributes)));
  add("value", op.value !== undefined && make("code", "", text(op.value)));
  const inside = [...bodyOf(op), ...regionsOf(op, keep)];
  return make("div", "inside", list, ...inside);
}

function torchText(op) {
  if (op.node === undefined) return "";
  return `%${text(op.node)} = ${text(op.target)}`;
}

function operand(graph, value) {
  const maker = graph.makers.get(value);
  if (!maker) return make("code", "operand", "an argument of the region");
  if (maker.argument !== undefined) {
    return make("code", "operand", `${maker.argument} ${maker.type}`);
  }
  if (!isConstant(maker.op)) return jump(maker.op);
  const shown = maker.op.value === undefined ? bytes(maker.op.bytes) : text(maker.op.value);
  return make("code", "operand", `${typesOf(maker.op)} constant, ${shown}`);
}

function jump(op) {
  const link = button("", "link operand", () => reveal(op));
  link.append(make("code", "", `#${op.id} ${titleOf(op)} ${typesOf(op)}`));
  return link;
}

// Return the ops of the called graph in order; constants are shown with their users.
function bodyOf(op) {
  const graph = called(op);
  if (!graph) return [];
  const steps = graph.ops.filter((inner) => inner.parent === undefined);
  return [make("p", "quiet", `Ops of ${titleOf(op)}:`), listed(steps.filter(isStep), stepRow)];
}

function regionsOf(op, keep) {
  const inner = op.graph.inner.get(op.index) ?? [];
  const regions = new Map();
  for (const nested of inner) push(regions, nested.region ?? 0, nested);
  return [...regions].flatMap(([number, ops]) => [
    make("p", "quiet", `region ${number + 1}`),
    listed(ops.filter(isStep), (nested) => keep(nested), ops.length),
  ]);
}

const isStep = (op) => !isConstant(op) && !isEnd(op);
const stepRow = (op) => row(op);

// Return a row of the tree, the target of links; rows of search results are temporary.
function kept(op) {
  const made = row(op, "", kept);
  rowsOf.set(op, made);
  return made;
}
