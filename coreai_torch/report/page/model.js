"use strict";

// The data of the page: ops with their function, values with their producer and users.

const data = JSON.parse(document.getElementById("data").textContent);

const text = (number) => (number === undefined ? "" : data.strings[number]);

function link(graph) {
  graph.makers = new Map();
  graph.users = new Map();
  graph.inner = new Map();
  for (const [value, name, type] of graph.arguments) {
    graph.makers.set(value, { argument: text(name), type: text(type) });
  }
  graph.ops.forEach((op, index) => linkOp(graph, op, index));
}

function linkOp(graph, op, index) {
  op.graph = graph;
  op.index = index;
  for (const value of op.results ?? []) graph.makers.set(value, { op });
  for (const value of op.operands ?? []) push(graph.users, value, op);
  if (op.parent !== undefined) push(graph.inner, op.parent, op);
}

function push(lists, key, item) {
  if (!lists.has(key)) lists.set(key, []);
  lists.get(key).push(item);
}

data.functions.forEach(link);

const isConstant = (op) => text(op.op) === "constant";
const isEnd = (op) => ["output", "yield"].includes(text(op.op));
const typesOf = (op) => (op.types ?? []).map(text).join(", ");
const called = (op) => (op.calls === undefined ? undefined : data.functions[op.calls]);

// Return the title of an op: the name of a composite, or the op without dialect prefixes.
function titleOf(op) {
  const graph = called(op);
  if (graph) return text(graph.composite) || text(graph.name);
  return text(op.op).replace(/^decomposable\.(broadcasting_)?/, "");
}

// Count the ops that run for one: those of the called graph, or itself and its regions.
function executed(op) {
  const graph = called(op);
  if (graph) return (graph.executed ??= sum(graph.ops.filter((each) => each.parent === undefined)));
  if (["constant", "output"].includes(text(op.op))) return 0;
  return 1 + sum(op.graph.inner.get(op.index) ?? []);
}

// Return the multiply-adds of one op, with those of the called graph or of its regions.
function macsOf(op) {
  const graph = called(op);
  const inner = graph ? graph.ops.filter((each) => each.parent === undefined) : op.graph.inner.get(op.index) ?? [];
  if (graph?.macs !== undefined) return graph.macs;
  const found = inner.reduce((total, each) => total + macsOf(each), op.macs ?? 0);
  if (graph) graph.macs = found;
  return found;
}

const sum = (ops) => ops.reduce((total, op) => total + executed(op), 0);

function sourceOf(op) {
  return op.line === undefined ? "" : `${text(op.file)}:${op.line}`;
}

function usersOf(op) {
  return (op.results ?? []).flatMap((value) => op.graph.users.get(value) ?? []);
}

// A constant without a module belongs to that of its first user. The ops of a composite belong to
// all its callers, although they record the module of only one.
function moduleOf(op) {
  if (text(op.graph.composite)) return "";
  if (op.module !== undefined) return text(op.module);
  const [user] = isConstant(op) ? usersOf(op) : [];
  return user?.module === undefined ? "" : text(user.module);
}

function bytes(count) {
  for (const [unit, scale] of [["GB", 2 ** 30], ["MB", 2 ** 20], ["kB", 2 ** 10]]) {
    if (count >= scale) return `${(count / scale).toFixed(1)} ${unit}`;
  }
  return `${count} bytes`;
}

const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

// A time as people write it: 2 min 5 s, 3.4 s, 12 ms, 850 µs.
function milliseconds(ms) {
  if (ms === undefined) return "";
  const seconds = ms / 1e3;
  if (seconds >= 99.5) return `${Math.floor(Math.round(seconds) / 60)} min ${Math.round(seconds) % 60} s`;
  for (const [unit, scale] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]]) {
    const number = seconds / scale;
    if (number >= 0.995) return `${number.toFixed(number < 9.95 ? 1 : 0)} ${unit}`;
  }
  return "0 s";
}

// A large number with its unit: 950, 11.7 M, 1.81 G.
function quantity(count) {
  for (const [unit, scale] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (count >= 0.9995 * scale) return `${Number((count / scale).toPrecision(3))} ${unit}`;
  }
  return `${count}`;
}
