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
const milliseconds = (ms) => (ms === undefined ? "" : `${ms.toFixed(3)} ms`);
