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
  const main = [
    make("span", "number", `#${op.id}`),
    make("code", "name", titleOf(op)),
    kind && make("span", "badge", kind === "called" ? "graph" : kind),
    where && make("span", "where", where),
    make("code", "type", typesOf(op)),
  ];
  const summary = columns(main, {
    ops: called(op) ? executed(op) : 0,
    parameters: op.parameters,
    macs: isConstant(op) ? 0 : macsOf(op),
    bytes: op.bytes,
    ms: op.ms,
  });
  return foldable(`op ${kind}`, summary, () => [detail(op, keep)]);
}

// The figures of an op or module, in columns of fixed width.
const COLUMNS = [
  ["ops", "ops", (count) => `${count}`.replace(/\B(?=(\d{3})+$)/g, ",")],
  ["parameters", "parameters", (count) => quantity(count)],
  ["macs", "multiply-adds", (count) => quantity(count)],
  ["bytes", "size", (count) => bytes(count)],
  ["ms", "time", (ms) => milliseconds(ms)],
];

function columns(main, figures) {
  const cells = COLUMNS.map(([key, , show]) => {
    return make("span", `figure ${key}`, figures[key] ? show(figures[key]) : "");
  });
  return [make("span", "main", ...main), ...cells];
}

function columnTitles() {
  const titles = COLUMNS.map(([key, title]) => make("span", `figure ${key}`, title));
  return make("div", "columns", make("span", "main", "module or op"), ...titles);
}

function detail(op, keep, go = reveal) {
  const list = make("dl", "detail");
  const add = (title, ...content) => {
    if (content.some(Boolean)) list.append(make("dt", "", title), make("dd", "", ...content));
  };
  add("op", make("code", "", text(op.op)));
  add("module", moduleOf(op) && make("code", "", moduleOf(op)));
  add("torch", op.target !== undefined && make("code", "", text(op.target)));
  add("FX node", op.node !== undefined && make("code", "", `%${text(op.node)}`));
  add("source", ...sourceParts(op));
  add("inputs", ...(op.operands ?? []).map((value) => operand(op.graph, value, go)));
  add("used by", ...usersOf(op).filter((user) => !isEnd(user)).map((user) => jump(user, go)));
  add("attributes", op.attributes !== undefined && make("code", "", text(op.attributes)));
  add("value", op.value !== undefined && make("code", "", text(op.value)));
  const inside = [...bodyOf(op), ...regionsOf(op, keep)];
  return make("div", "inside", list, ...inside);
}

// The file and line of an op: a link that editors register, and the lines if the page has them.
function sourceParts(op) {
  const place = sourceOf(op);
  if (!place) return [];
  const link = make("a", "", make("code", "source", place));
  link.href = `vscode://file${encodeURI(text(op.file)).replace(/[?#]/g, encodeURIComponent)}:${op.line}`;
  link.title = "Open in the editor";
  const absolute = text(op.file).startsWith("/");
  const lines = data.code?.[text(op.file)]?.[op.line];
  const rest = text(op.callers).split("\n").map((each) => make("code", "caller", each));
  return [absolute ? link : make("code", "source", place), lines && codeLines(lines, op.line), ...rest];
}

function codeLines(lines, line) {
  const [first, ...shown] = lines;
  return make("pre", "lines", ...shown.map((content, index) => {
    const number = make("span", "line-number", `${first + index}`.padStart(4), " ");
    return make("span", first + index === line ? "line here" : "line", number, content || " ");
  }));
}

function torchText(op) {
  if (op.node === undefined) return "";
  return `%${text(op.node)} = ${text(op.target)}`;
}

function operand(graph, value, go) {
  const maker = graph.makers.get(value);
  if (!maker) return make("code", "operand", "an argument of the region");
  if (maker.argument !== undefined) {
    return make("code", "operand", `${maker.argument} ${maker.type}`);
  }
  if (!isConstant(maker.op)) return jump(maker.op, go);
  const shown = maker.op.value === undefined ? bytes(maker.op.bytes) : text(maker.op.value);
  return make("code", "operand", `${typesOf(maker.op)} constant, ${shown}`);
}

function jump(op, go) {
  const link = button("", "link operand", () => go(op));
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
