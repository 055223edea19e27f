// Group the ops of a graph into folders by module, in program order.

function treeOf(graph) {
  const root = folder("", "");
  const own = graph.ops.filter((op) => op.parent === undefined && !isEnd(op));
  // A program lists its constants first, in arbitrary order; here they come after the other ops.
  for (const op of own.filter((op) => !isConstant(op))) place(root, op).entries.push({ op });
  for (const op of own.filter(isConstant)) place(root, op);
  return root;
}

function folder(path, label) {
  return { path, label, entries: [], children: new Map(), ops: 0, bytes: 0, ms: 0, macs: 0, parameters: 0 };
}

// Return the folder of an op, and count the op in it and in its parents.
function place(root, op) {
  const path = moduleOf(op);
  let at = root;
  tally(at, op);
  for (const part of path ? path.split(".") : []) {
    at = child(at, part);
    tally(at, op);
  }
  return at;
}

function child(parent, part) {
  let found = parent.children.get(part);
  if (!found) {
    found = folder(parent.path ? `${parent.path}.${part}` : part, part);
    parent.children.set(part, found);
    parent.entries.push({ folder: found });
  }
  return found;
}

function tally(at, op) {
  if (isConstant(op)) {
    at.bytes += op.shared ? 0 : op.bytes; // stored once, however many graphs use it
    at.parameters += op.parameters ?? 0;
  } else {
    at.ops += executed(op);
    at.macs += macsOf(op);
  }
  at.ms += op.ms ?? 0;
}

// Show a folder that contains only one folder as one line: `encoder.layer`.
function shortened(at) {
  let label = at.label;
  while (at.entries.length === 1 && at.entries[0].folder) {
    at = at.entries[0].folder;
    label += `.${at.label}`;
  }
  return { label, at };
}
